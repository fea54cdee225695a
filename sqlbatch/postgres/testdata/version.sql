SELECT version, paused::integer, slots, holds, shard, shards, shard_set FROM "public"."chanq__queues" WHERE name = 'orders';
