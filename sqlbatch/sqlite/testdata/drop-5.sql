DROP TABLE "main"."chanq_orders_dead";
