SELECT version, paused::integer, slots, holds, shard, shards, shard_set FROM "public"."chanq_queues" WHERE name = 'orders';
