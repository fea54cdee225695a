package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

// The alternatives of docs/internals/decisions.md, measured by the bare loop with rewritten statements of the
// dialect. An operation is the whole life of one message: enqueued, claimed, acked.

// rewritten is a queue with changed statement texts.
type rewritten struct {
	sqlbatch.Queue
	rewrite func(string) string
	texts   map[string]string
}

func (r *rewritten) change(st sqlbatch.Statement) sqlbatch.Statement {
	text, ok := r.texts[st.Text]
	if !ok {
		text = r.rewrite(st.Text)
		r.texts[st.Text] = text
	}
	st.Text = text
	return st
}

func (r *rewritten) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	return r.change(r.Queue.Enqueue(rows))
}

func (r *rewritten) Claim(p sqlbatch.ClaimParams) sqlbatch.Statement {
	return r.change(r.Queue.Claim(p))
}

func (r *rewritten) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	return r.change(r.Queue.Ack(items))
}

// remake replaces the tables of a store by rewritten ones.
func remake(b *testing.B, s *store, rewrite func(string) string) {
	for _, table := range []string{"", "__dead", "__done"} {
		_, err := s.db.Exec(`DROP TABLE "chanq_` + s.place.Queue + table + `"`)
		require.NoError(b, err)
	}
	for _, m := range s.dialect.Migrations(sqlbatch.Names{Queue: s.place.Queue}) {
		for _, text := range m.Statements {
			_, err := s.db.Exec(rewrite(text))
			require.NoError(b, err)
		}
	}
	s.sql = &rewritten{s.sql, rewrite, map[string]string{}}
}

// live measures the whole life of b.N messages.
func live(b *testing.B, s *store, body int) {
	bodies := makeBodies(b.N, body)
	loop := bareLoop{s, 500, 1}
	end := start(b, s)
	require.NoError(b, loop.enqueue(b.Context(), bodies))
	require.NoError(b, loop.drain(b.Context(), b.N))
	end()
}

func BenchmarkDecideTable(b *testing.B) {
	for _, body := range []int{200, 4000} {
		for _, variant := range []struct {
			name    string
			rewrite func(string) string
		}{
			{"rowid", func(text string) string { return text }},
			{"withoutRowid", func(text string) string {
				text = strings.ReplaceAll(text, "rowid", "id")
				if strings.HasPrefix(text, "CREATE TABLE") && !strings.Contains(text, "WITHOUT ROWID") {
					if strings.HasSuffix(text, "STRICT") {
						text += ","
					}
					text += " WITHOUT ROWID"
				}
				return text
			}},
		} {
			b.Run(fmt.Sprintf("table=%s/body=%d", variant.name, body), func(b *testing.B) {
				s := openStore(b)
				remake(b, s, variant.rewrite)
				live(b, s, body)
			})
		}
	}
}

func BenchmarkDecideSynchronous(b *testing.B) {
	for _, mode := range []string{"FULL", "NORMAL"} {
		for _, batch := range []int{1, 500} {
			b.Run(fmt.Sprintf("synchronous=%s/batch=%d", mode, batch), func(b *testing.B) {
				s := openStore(b)
				s.db.SetMaxOpenConns(1) // the setting applies to one connection
				_, err := s.db.Exec("PRAGMA synchronous = " + mode)
				require.NoError(b, err)
				bodies := makeBodies(b.N, benchBody)
				loop := bareLoop{s, batch, 1}
				end := start(b, s)
				require.NoError(b, loop.enqueue(b.Context(), bodies))
				require.NoError(b, loop.drain(b.Context(), b.N))
				end()
			})
		}
	}
}

// bound sends values as separate parameters instead of packed.
type bound struct{ sqlbatch.Queue }

const boundTable = `"chanq_bench"`

func (q bound) Enqueue(rows []sqlbatch.Row) sqlbatch.Statement {
	const now = `CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)`
	var text strings.Builder
	text.WriteString(`INSERT INTO ` + boundTable + ` (id, priority, due_at, enqueued_at, dedup_key, headers, body)
SELECT column1, column2, t.now + column3, t.now, column4, column5, column6
FROM (SELECT ` + now + ` AS now) AS t CROSS JOIN (VALUES `)
	args := make([]any, 0, 6*len(rows))
	for i := range rows {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString("(?,?,?,?,?,?)")
		row := &rows[i]
		args = append(args, row.ID[:], int64(row.Priority), row.Delay.Milliseconds(), nil, row.Headers, row.Body)
	}
	text.WriteByte(')')
	return sqlbatch.Statement{Text: text.String(), Args: args}
}

func (q bound) Ack(items []sqlbatch.Item) sqlbatch.Statement {
	var text strings.Builder
	text.WriteString(`DELETE FROM ` + boundTable + ` WHERE rowid IN (SELECT q.rowid FROM (VALUES `)
	args := make([]any, 0, 2*len(items))
	for i := range items {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString("(?,?)")
		args = append(args, items[i].ID[:], int64(items[i].Fence))
	}
	text.WriteString(`) AS n CROSS JOIN ` + boundTable + ` AS q ON q.id = n.column1 AND q.fence = n.column2) RETURNING id, fence`)
	return sqlbatch.Statement{Text: text.String(), Args: args}
}

// BenchmarkDecidePacking compares one packed blob with bound parameters, in each of the two
// statements with lists. An operation is one message in one of the statements.
func BenchmarkDecidePacking(b *testing.B) {
	for _, batch := range []int{1, 32, 500} {
		for _, packed := range []bool{true, false} {
			way := map[bool]string{true: "packed", false: "bound"}[packed]
			name := fmt.Sprintf("values=%s/batch=%d", way, batch)
			prepare := func(b *testing.B) *store {
				s := openStore(b)
				_, err := s.db.Exec("PRAGMA synchronous = OFF") // to exclude the disk
				require.NoError(b, err)
				s.db.SetMaxOpenConns(1)
				if !packed {
					s.sql = bound{s.sql}
				}
				return s
			}
			b.Run("statement=enqueue/"+name, func(b *testing.B) {
				s := prepare(b)
				bodies := makeBodies(b.N, benchBody)
				end := start(b, s)
				require.NoError(b, bareLoop{s, batch, 1}.enqueue(b.Context(), bodies))
				end()
			})
			b.Run("statement=ack/"+name, func(b *testing.B) {
				s := prepare(b)
				fill(b, s, b.N)
				items := claimAll(b, s)
				end := start(b, s)
				require.NoError(b, s.session(context.Background(), func(session *bareSession) error {
					for len(items) > 0 {
						n := min(batch, len(items))
						if err := session.ack(items[:n]); err != nil {
							return err
						}
						items = items[n:]
					}
					return nil
				}))
				end()
			})
		}
	}
}

// claimAll claims all messages and returns the items to ack.
func claimAll(b *testing.B, s *store) (items []sqlbatch.Item) {
	require.NoError(b, s.session(b.Context(), func(session *bareSession) error {
		for {
			if err := session.claim(500); err != nil {
				return err
			}
			if len(session.items) == 0 {
				return nil
			}
			items = append(items, session.items...)
		}
	}))
	require.Len(b, items, b.N)
	return items
}
