DELETE FROM "public"."chanq_members" WHERE id = $1::uuid;
