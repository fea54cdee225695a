SELECT version, paused, slots, holds, shard, shards, shard_set FROM "main"."chanq_queues" WHERE name = 'orders';
