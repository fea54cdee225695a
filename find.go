package chanq

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
)

// liveRow is what Find tells of a message in the queue.
type liveRow struct {
	id    ID
	key   string
	fence int64
}

// errOutcomeHidden: a first try may have been applied, and what happened since
// hides whether it was.
var errOutcomeHidden = errors.New("the connection broke during the first try, and the message has moved on since")

// find looks for live messages by id.
func (q *queue) find(ctx context.Context, s *sessions, timeout time.Duration, ids [][16]byte) (map[ID]liveRow, error) {
	found := map[ID]liveRow{}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for chunk := range slices.Chunk(ids, q.dialect.Traits().FindIDs) {
		if err := s.run(ctx, q.sql.Find(chunk, nil), collectLive(found)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

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
