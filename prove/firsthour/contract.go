package main

import (
	"context"
	"database/sql"
)

// behaviour is one thing that SQL Server does.
type behaviour struct {
	name     string
	expected func(versions bool) string
	run      func(context.Context, *sql.DB) (seen string, err error)
}

// contract returns the behaviours.
var contract = func() []behaviour { return nil }
