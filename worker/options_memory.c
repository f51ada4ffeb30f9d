/* options_memory.c - the memory of one configuration: blocks that are freed together; see
 * options_table.h. They may hold secrets and are wiped. */
#include "worker/options_table.h"

#include <stdlib.h>
#include <string.h>

struct option_block {
    struct option_block *next;
    size_t size;
    max_align_t bytes[];
};

void *options_keep(struct options_loader *loader, size_t size)
{
    struct options_private *own = loader->options->own;
    struct option_block *block = calloc(1, sizeof *block + size);

    if (!block) {
        loader->out_of_memory = true;
        return NULL;
    }
    block->size = size;
    block->next = own->blocks;
    own->blocks = block;
    return block->bytes;
}

const char *options_keep_text(struct options_loader *loader, const char *bytes, size_t length)
{
    char *kept = options_keep(loader, length + 1);

    if (kept)
        memcpy(kept, bytes, length);
    return kept;
}

void options_free(struct options *options)
{
    if (!options)
        return;
    while (options->own && options->own->blocks) {
        struct option_block *block = options->own->blocks;

        options->own->blocks = block->next;
        explicit_bzero(block->bytes, block->size);
        free(block);
    }
    free(options->own);
    free(options);
}
