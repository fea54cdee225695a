SELECT pg_advisory_xact_lock(426952978033);
