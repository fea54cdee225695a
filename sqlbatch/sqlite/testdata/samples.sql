SELECT at, ready, scheduled, leased, dead, oldest, sent, acked, nacked, died, delivered,
  times0, times1, times2, times3, times4, times5, times6, times7, times8, times9, times10, times11, times12, times13, times14, times15, times16, times17, times18, times19, times20, times21, times22, times23, times24, times25, times26, times27, times28, times29
FROM "main"."chanq__samples" WHERE queue = 'orders' AND step = ?2 AND at >= ?1 ORDER BY at;
