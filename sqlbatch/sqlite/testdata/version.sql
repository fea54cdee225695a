SELECT version, paused, slots, holds, shard, shards, shard_set FROM "main"."chanq__queues" WHERE name = 'orders';
