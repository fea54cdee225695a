// Package foreign tests docs/guides/sql.md: every statement of it is run, by Go's drivers and by programs in other languages,
// and the messages that they send are delivered. SQL of the other documents for an engine is run by its driver.
package foreign
