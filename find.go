package chanq

import "database/sql"

// liveRow is what Find tells of a message in the queue.
type liveRow struct {
	id    ID
	key   string
	fence int64
}

// collectLive scans the rows of Find.
func collectLive(found map[ID]liveRow) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var id, key []byte
		var r liveRow
		if err := rows.Scan(&id, &key, &r.fence); err != nil {
			return err
		}
		copy(r.id[:], id)
		r.key = string(key)
		found[r.id] = r
		return nil
	}
}
