SELECT (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now;
