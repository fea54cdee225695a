package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

func (q *serverQueue) consumers() []string {
	q.Helper()
	return suite.ConsumerNames(q, q.rows(q.db, q.Consumers()))
}

func TestTextsOfAConsumerAreCut(t *testing.T) {
	q := newQueue(t)
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(1), Name: "x" + strings.Repeat("é", 200), Host: "\x00\xff", For: time.Hour}))
	row := q.rows(q.db, q.Consumers())[0]
	require.Equal(t, "x"+strings.Repeat("é", 99), row[1])
	require.Equal(t, "��", row[2])
}

func TestAJoinDeletesConsumersThatAreLongGone(t *testing.T) {
	q := newQueue(t)
	for n := range byte(4) {
		q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(n), Name: string('a' + rune(n)), For: time.Hour}))
	}
	const day = 86_400_000
	q.exec(`UPDATE chanq__consumers SET queue = 'other', until = $1 WHERE name = 'b'`, q.now()-day-1)
	q.exec(`UPDATE chanq__consumers SET until = $1 WHERE name = 'c'`, q.now()-day+60_000)
	q.exec(`UPDATE chanq__consumers SET until = 0 WHERE name IN ('a', 'd')`)
	locked := q.begin()
	_, err := locked.Exec(`SELECT FROM chanq__consumers WHERE name = 'd' FOR UPDATE`)
	require.NoError(t, err)

	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(0), Name: "a", For: time.Hour}))
	var left string
	require.NoError(t, q.db.QueryRow(`SELECT string_agg(name, '' ORDER BY name) FROM chanq__consumers`).Scan(&left))
	require.Equal(t, "acd", left, "b was gone for more than a day, in any queue; d is locked, and Join does not wait for it")
	require.Equal(t, []string{"a"}, q.consumers(), "a has joined again")
}

// Two consumers whose memberships have ended join again, and each tries to delete the other.
func TestJoinsDoNotDeadlock(t *testing.T) {
	q := newQueue(t)
	q.exec(`INSERT INTO chanq__consumers (id, since, until, process, queue, name, host)
SELECT gen_random_uuid(), 0, 0, 0, 'orders', '', '' FROM generate_series(1, 50)`)
	for range 20 {
		for n := range byte(8) {
			q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(n)}))
		}
		q.exec(`UPDATE chanq__consumers SET until = 0`)
		failed := make(chan error)
		for n := range byte(8) {
			go func() {
				_, err := suite.Rows(q.ctx, q.db, q.Join(sqlbatch.Consumer{ID: id(n), For: time.Hour}))
				failed <- err
			}()
		}
		for range 8 {
			require.NoError(t, <-failed)
		}
	}
}

// The delete scans the whole table; renewals of a thousand members do not.
func TestOnlyAJoiningConsumerDeletesOthers(t *testing.T) {
	q := newQueue(t)
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(1), Name: "a", For: time.Hour}))
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(2), Name: "b", For: time.Hour}))
	q.exec(`UPDATE chanq__consumers SET until = 0 WHERE name = 'b'`)
	count := func() (n int) {
		require.NoError(t, q.db.QueryRow(`SELECT count(*) FROM chanq__consumers`).Scan(&n))
		return n
	}
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(1), Name: "a", For: time.Hour}))
	require.Equal(t, 2, count(), "a stays")
	q.rows(q.db, q.Join(sqlbatch.Consumer{ID: id(3), Name: "c", For: time.Hour}))
	require.Equal(t, 2, count(), "c comes")
}
