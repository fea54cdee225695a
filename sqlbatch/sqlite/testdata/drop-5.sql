DROP TABLE "main"."chanq_orders__dead";
