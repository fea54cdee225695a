// Package sqlite3 is empty. GORM's dialect of SQLite imports the driver in C that has this path, which the tests do not use and
// which would take a minute to compile.
package sqlite3
