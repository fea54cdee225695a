package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
)

// facts is part 1: what the server is, and that each database has the options that it was created with.
func facts(ctx context.Context, h *hour) error {
	h.report.note("version", h.version)
	for _, r := range rights {
		if slices.Contains(h.missing, r.name) {
			h.report.skip("parts: "+r.parts, errors.New("the login may not "+r.name))
		}
	}
	for _, f := range []struct{ what, text string }{
		{"build", `SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion'))`},
		{"edition", `SELECT CONVERT(nvarchar(128), SERVERPROPERTY('Edition'))`},
		{"cores", `SELECT CONVERT(nvarchar(20), cpu_count) FROM sys.dm_os_sys_info`},
		{"memory, MB", `SELECT CONVERT(nvarchar(20), committed_target_kb / 1024) FROM sys.dm_os_sys_info`},
		{"collation of the server", `SELECT CONVERT(nvarchar(128), SERVERPROPERTY('Collation'))`},
	} {
		found, err := h.fact(ctx, h.admin, f.text)
		if err != nil {
			h.report.skip(f.what, err)
			continue
		}
		h.report.note(f.what, found)
	}
	for _, d := range h.databases {
		h.databaseFacts(ctx, d)
	}
	return nil
}

// databaseFacts compares the options of one database.
func (h *hour) databaseFacts(ctx context.Context, d *database) {
	checks := []struct{ what, expected, text string }{
		{"READ_COMMITTED_SNAPSHOT", onOff(d.versions), `SELECT CASE WHEN is_read_committed_snapshot_on = 1 THEN 'on' ELSE 'off' END FROM sys.databases WHERE database_id = DB_ID()`},
		{"DELAYED_DURABILITY", "DISABLED", `SELECT CONVERT(nvarchar(60), delayed_durability_desc) FROM sys.databases WHERE database_id = DB_ID()`},
	}
	if d.collation != "" {
		checks = append(checks, struct{ what, expected, text string }{"collation", d.collation, `SELECT CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Collation'))`})
	}
	if h.major >= 17 {
		checks = append(checks, struct{ what, expected, text string }{"optimized locking", onOff(d.optimized), `SELECT CASE WHEN CONVERT(int, DATABASEPROPERTYEX(DB_NAME(), 'IsOptimizedLockingOn')) = 1 THEN 'on' ELSE 'off' END`})
	}
	for _, c := range checks {
		found, err := h.fact(ctx, d.db, c.text)
		if err != nil {
			h.report.skip(d.suffix+": "+c.what, err)
			continue
		}
		h.report.compare(d.suffix+": "+c.what, c.expected, found)
	}
	recovery, err := h.fact(ctx, d.db, `SELECT CONVERT(nvarchar(60), recovery_model_desc) FROM sys.databases WHERE database_id = DB_ID()`)
	if err != nil {
		h.report.skip(d.suffix+": recovery model", err)
		return
	}
	h.report.note(d.suffix+": recovery model", recovery)
}

// fact returns the one value of a query as a text.
func (h *hour) fact(ctx context.Context, db *sql.DB, text string) (string, error) {
	var found sql.NullString
	err := db.QueryRowContext(ctx, text).Scan(&found)
	if !found.Valid {
		found.String = "unknown"
	}
	return strings.TrimSpace(found.String), err
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
