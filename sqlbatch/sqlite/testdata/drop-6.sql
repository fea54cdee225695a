DROP TABLE "main"."chanq_orders__done";
