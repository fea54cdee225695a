DROP TABLE "main"."chanq_orders";
