// Package foreign proves docs/sql.md: every statement of it is run, by the drivers that Go has and by
// programs that are not Go, and what they sent is delivered. What the other documents have in SQL for
// an engine is run by its driver.
package foreign
