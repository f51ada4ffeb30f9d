/* judge_list.h - what an upstream's answer means: read from the top, the first rule that fits wins.
 *
 * RULE(dialects, statuses, field, pattern, class, dimension, out)
 *   dialects   EVERY; SPOKEN = all but plain, which is judged by status alone; or a set of them
 *   statuses   ALL; ONLY(n); FROM(low, high); LIMITED = 429 or an error in a stream; IN_STREAM =
 *              an error in a stream, which has no status unless it says one
 *   field      ALWAYS   the pattern is not looked at
 *              NAME     code, type, Google's status, inner code or reason
 *              TYPE, QUOTA (Google's quotaIds), MESSAGE
 *              LONG_WAIT  the upstream says to wait LONG_WAIT_MS or more
 *              BARE     the body is not an error of any dialect
 *              BARE_PROXY  that, and the head looks like an intermediary's
 *   pattern    * and ?, the case of letters does not matter
 *   out        how long the source is out: STAYS, KEY_OUT, MONEY_OUT, the upstream's own word
 *              (AS_TOLD), until Google's day ends (PACIFIC_DAY)
 *
 * A message may quote the caller. Where the source is taken out by one, the pattern begins where the
 * message does, or the status is one that no caller can bring about by what he writes.
 */

/* Throttling that names itself: beats every keyword below, and billing words beside it. */
RULE(SPOKEN, ALL, NAME, "Throttling.RateQuota", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, ALL, NAME, "Throttling.AllocationQuota", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, ALL, NAME, "Throttling.BurstRate", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, ALL, NAME, "Throttling.Concurrency", THROTTLE, CONCURRENCY, STAYS)
RULE(SPOKEN, ALL, NAME, "Throttling*", THROTTLE, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "limit_requests", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, ALL, NAME, "LimitRequests", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, ALL, NAME, "limit_burst_rate", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, LIMITED, NAME, "slow_down", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, ONLY(503), NAME, "slow_down", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "Request rate increased too quickly*", THROTTLE, RAMP, STAYS)

/* No money, in words that have one meaning only. */
RULE(SPOKEN, ALL, NAME, "Arrearage", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "CommodityNotPurchased", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "PrepaidBillOverdue", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "PostpaidBillOverdue", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "AllocationQuota.FreeTierOnly", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "AccessDenied.Unpurchased", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "credit_balance_*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "insufficient_balance", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "billing_*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "*spend_limit*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "*spending_limit*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "*usage_limit*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ALL, NAME, "exceeded_current_quota*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, FROM(400, 429), MESSAGE, "Your credit balance is too low*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, FROM(400, 429), MESSAGE, "You have reached your specified * usage limits*", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, FROM(400, 429), MESSAGE, "Your team * has either used all available credits*", MONEY, UNKNOWN, MONEY_OUT)

/* insufficient_quota: tokens per minute at DashScope (there in OpenAI's words for billing), no money
 * everywhere else. The second pair is for a DashScope that was configured as openai. */
RULE(DASHSCOPE, ALL, MESSAGE, "*requests list*", THROTTLE, REQUESTS, STAYS)
RULE(DASHSCOPE, ALL, MESSAGE, "Requests rate limit exceeded*", THROTTLE, REQUESTS, STAYS)
RULE(DASHSCOPE, ALL, NAME, "insufficient_quota", THROTTLE, TOKENS, STAYS)
RULE(DASHSCOPE, LIMITED, MESSAGE, "You exceeded your current quota*", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*error-code#token-limit*", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "Allocated quota exceeded*", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, ALL, NAME, "insufficient_quota", MONEY, UNKNOWN, MONEY_OUT)

/* The key or the account. Google refuses a bad key with 400. */
RULE(SPOKEN, ALL, NAME, "invalid_api_key", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, ALL, NAME, "InvalidApiKey", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, ALL, NAME, "account_deactivated", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(GOOGLE, ALL, NAME, "API_KEY_*", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(GOOGLE, ALL, NAME, "CONSUMER_*", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(GOOGLE, ONLY(400), MESSAGE, "API key not valid*", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(GOOGLE, ONLY(400), MESSAGE, "API key expired*", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(GOOGLE, ONLY(400), MESSAGE, "User location is not supported*", CREDENTIAL, UNKNOWN, KEY_OUT)

/* The caller's. */
RULE(SPOKEN, ALL, NAME, "context_length_exceeded", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "content_filter*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "*content_policy*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "moderation_blocked", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "invalid_prompt", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "ResponsibleAIPolicyViolation", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "DataInspectionFailed", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "data_inspection_failed", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "InvalidParameter*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ALL, NAME, "image_generation_user_error", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, ONLY(403), MESSAGE, "*requires moderation*", REQUEST, UNKNOWN, STAYS)

/* Too much for today. Google's retryDelay of a day's quota is short and wrong. Who lets us wait for an
 * hour or more means the same. */
RULE(GOOGLE, ALL, QUOTA, "*Token*PerDay*", QUOTA_DAY, TOKENS, PACIFIC_DAY)
RULE(GOOGLE, ALL, QUOTA, "*PerDay*", QUOTA_DAY, REQUESTS, PACIFIC_DAY)
RULE(GOOGLE, LIMITED, MESSAGE, "*limit: 0,*", QUOTA_DAY, UNKNOWN, PACIFIC_DAY)
RULE(GOOGLE, LIMITED, MESSAGE, "*limit: 0\n*", QUOTA_DAY, UNKNOWN, PACIFIC_DAY)
RULE(GOOGLE, LIMITED, MESSAGE, "*limit: 0", QUOTA_DAY, UNKNOWN, PACIFIC_DAY)
RULE(SPOKEN, LIMITED, LONG_WAIT, "", QUOTA_DAY, UNKNOWN, AS_TOLD)
RULE(SPOKEN, ONLY(429), MESSAGE, "*tokens per day*", QUOTA_DAY, TOKENS, AS_TOLD)
RULE(SPOKEN, ONLY(429), MESSAGE, "*per day*", QUOTA_DAY, REQUESTS, AS_TOLD)
RULE(SPOKEN, ONLY(429), MESSAGE, "*-per-day*", QUOTA_DAY, REQUESTS, AS_TOLD)
RULE(AZURE, FROM(403, 429), MESSAGE, "Out of call volume quota*", QUOTA_DAY, REQUESTS, AS_TOLD)

/* Too fast: what of. Vertex says so with 5xx, too, to who has provisioned throughput. */
RULE(GOOGLE, ALL, QUOTA, "*Token*PerMinute*", THROTTLE, TOKENS, STAYS)
RULE(GOOGLE, ALL, QUOTA, "*Request*PerMinute*", THROTTLE, REQUESTS, STAYS)
RULE(GOOGLE, ALL, NAME, "RESOURCE_EXHAUSTED", THROTTLE, UNKNOWN, STAYS)
RULE(GOOGLE, FROM(429, 599), MESSAGE, "Resource exhausted*", THROTTLE, UNKNOWN, STAYS)
RULE(GOOGLE, FROM(429, 599), MESSAGE, "*Provisioned Throughput*", THROTTLE, UNKNOWN, STAYS)
RULE(SPOKEN, LIMITED, TYPE, "tokens", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, LIMITED, TYPE, "requests", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, LIMITED, TYPE, "*images", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*tokens per min*", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*token rate limit*", THROTTLE, TOKENS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*requests per min*", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*images per min*", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, LIMITED, MESSAGE, "*call rate limit*", THROTTLE, REQUESTS, STAYS)
RULE(SPOKEN, ONLY(429), MESSAGE, "*concurren*", THROTTLE, CONCURRENCY, STAYS)
RULE(SPOKEN, ONLY(429), MESSAGE, "*acceleration limit*", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, ONLY(503), MESSAGE, "Slow down*", THROTTLE, RAMP, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "*rate_limit*", THROTTLE, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "too*many*requests", THROTTLE, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "RateLimitReached", THROTTLE, UNKNOWN, STAYS)

/* An error in a stream has no status: its general words stand for one. The rest there is the
 * upstream's fault (overloaded_error, server_is_overloaded, server_error, api_error ...). */
RULE(SPOKEN, IN_STREAM, NAME, "authentication_error", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, IN_STREAM, NAME, "permission_*", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, IN_STREAM, NAME, "UNAUTHENTICATED", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, IN_STREAM, NAME, "AccessDenied", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(SPOKEN, IN_STREAM, NAME, "invalid_request*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "invalid_argument", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "invalid_parameter*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "invalid_value", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "invalid_image*", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "not_found_error", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "model_not_found", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "request_too_large", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "FAILED_PRECONDITION", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, IN_STREAM, NAME, "BadRequest*", REQUEST, UNKNOWN, STAYS)

/* The status, where nothing else told. A bare 403 is often a firewall's, about this caller's words:
 * no reason to take the source from all others. 501 to 504 and 408 that nobody signed leave open
 * whether the work was done; so do the content network's own 520 and 524. */
RULE(EVERY, ONLY(402), ALWAYS, "", MONEY, UNKNOWN, MONEY_OUT)
RULE(SPOKEN, ONLY(403), BARE, "", CREDENTIAL, UNKNOWN, STAYS)
RULE(EVERY, ONLY(401), ALWAYS, "", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(EVERY, ONLY(403), ALWAYS, "", CREDENTIAL, UNKNOWN, KEY_OUT)
RULE(EVERY, ONLY(429), ALWAYS, "", THROTTLE, UNKNOWN, STAYS)
RULE(SPOKEN, ONLY(408), BARE_PROXY, "", TRANSIENT, UNKNOWN, STAYS)
RULE(SPOKEN, ONLY(408), BARE, "", UNKNOWN, UNKNOWN, STAYS)
RULE(EVERY, ONLY(408), ALWAYS, "", TRANSIENT, UNKNOWN, STAYS)
RULE(EVERY, FROM(400, 499), ALWAYS, "", REQUEST, UNKNOWN, STAYS)
RULE(SPOKEN, FROM(501, 504), BARE_PROXY, "", TRANSIENT, UNKNOWN, STAYS)
RULE(SPOKEN, FROM(501, 504), BARE, "", UNKNOWN, UNKNOWN, STAYS)
RULE(SPOKEN, ONLY(520), BARE, "", UNKNOWN, UNKNOWN, STAYS)
RULE(SPOKEN, ONLY(524), BARE, "", UNKNOWN, UNKNOWN, STAYS)
RULE(EVERY, ALL, ALWAYS, "", TRANSIENT, UNKNOWN, STAYS)
