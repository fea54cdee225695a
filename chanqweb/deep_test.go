package chanqweb_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/internal/testdb"
	"github.com/chanq/chanq/internal/testdb/faultdb"
)

// deepVariable says how many messages the deep queue has: 5000000 takes minutes, and some
// gigabytes of disk. Without it there are few, and what is read is counted and not how long it takes.
const deepVariable = "CHANQ_TEST_DEEP"

const (
	fewMessages = 100_000 // several times what any count or list reads
	pageTime    = 100 * time.Millisecond
	fewOfThem   = 3_000 // leased at the front, and scheduled at the end
)

// deepFill makes n messages of two queues, and a tenth as many dead ones, by statements of
// the engine: {n} is n.
var deepFill = map[string][]string{
	"sqlite": {
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
		INSERT INTO chanq_mail (id, due_at, body) SELECT CAST(printf('%016d', i) AS BLOB), 1700000000000 + i, CAST(printf('{"number":%0100d}', i) AS BLOB) FROM n`,
		`UPDATE chanq_mail SET attempts = 1, lease_until = 4000000000000, leased_by = x'00112233445566778899aabbccddeeff' WHERE due_at <= 1700000000000 + {some}`,
		`UPDATE chanq_mail SET due_at = due_at + 2200000000000 WHERE due_at > 1700000000000 + {n} - {some}`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n} / 10)
		INSERT INTO chanq_mail_dead (id, priority, enqueued_at, ended_at, fence, attempts, last_error, body)
		SELECT CAST(printf('%016d', i) AS BLOB), 0, 1700000000000, 1700000000000 + i, 1, 10, 'kind ' || char(65 + i % 20) || ' of order ' || i || ' is unknown', zeroblob(500) FROM n`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n} / 5)
		INSERT INTO chanq_line (id, due_at, slot, order_key, body) SELECT CAST(printf('%016d', i) AS BLOB), 1700000000000, i % 64, 'key ' || (i % 1000), zeroblob(100) FROM n`,
	},
	"postgres": {
		`INSERT INTO chanq_mail (id, due_at, body) SELECT lpad(to_hex(i), 32, '0')::uuid, 1700000000000 + i, convert_to(format('{"number":%s}', lpad(i::text, 100, '0')), 'UTF8') FROM generate_series(1, {n}) AS i`,
		`UPDATE chanq_mail SET attempts = 1, lease_until = 4000000000000, leased_by = '00112233-4455-6677-8899-aabbccddeeff' WHERE due_at <= 1700000000000 + {some}`,
		`UPDATE chanq_mail SET due_at = due_at + 2200000000000 WHERE due_at > 1700000000000::bigint + {n} - {some}`,
		`INSERT INTO chanq_mail_dead (id, priority, enqueued_at, ended_at, fence, attempts, last_error, body)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 0, 1700000000000, 1700000000000 + i, 1, 10, 'kind ' || chr(65 + i % 20) || ' of order ' || i || ' is unknown', convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, {n} / 10) AS i`,
		`INSERT INTO chanq_line (id, due_at, seq, slot, order_key, body) SELECT lpad(to_hex(i), 32, '0')::uuid, 1700000000000, i, i % 64, 'key ' || (i % 1000), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, {n} / 5) AS i`,
		`ANALYZE chanq_mail`, `ANALYZE chanq_mail_dead`, `ANALYZE chanq_line`,
	},
}

// Whatever is in a queue, a page asks the same few things, which read a part of it; and with
// millions of messages each takes less than a tenth of a second.
func TestAPageOfADeepQueueAsksAsLittleAsAnother(t *testing.T) {
	n, measured := fewMessages, false
	if text := os.Getenv(deepVariable); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, deepVariable)
		measured = true
	}
	for _, e := range []testdb.Engine{testdb.SQLite, testdb.Postgres} {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			shop := deepShop(t, e, n)
			// A page that was just made remembers no figures, and has to open a queue first.
			opening := shop.statements(func() { shop.open(everything).see("/q/mail/messages?state=done") }) - 1
			for _, page := range []struct {
				path       string
				statements int
			}{
				{"/", 1 + 2 + 2 + opening},              // the names, and of two queues the figures and the last hour
				{"/q/mail/", 3},                         // figures, members, history
				{"/q/mail/messages?state=ready", 1 + 4}, // the first 3,000 are leased
				{"/q/mail/messages?state=leased", 1},
				{"/q/mail/messages?state=scheduled", 1},
				{"/q/mail/messages?state=dead", 1},
				{"/q/mail/messages?state=done", 1},
				{"/q/mail/messages?state=ready&from=0." + strconv.Itoa(1_700_000_000_000+n/2) + ".00000000-0000-7000-8000-000000000000", 1},
				{"/q/mail/failures", 4},
				{"/q/mail/members", 2},
				{"/q/line/", 3},
				{"/q/line/messages?state=ready", 2},
				{"/q/line/messages?state=leased", 2},
				{"/q/line/slots", 1},
			} {
				asked, took, least := 0, time.Duration(0), time.Hour
				for range 3 { // the first one may have to read from the disk
					s := shop.open(everything)
					asked = shop.statements(func() {
						began := time.Now()
						s.see(page.path)
						took = time.Since(began)
					})
					least = min(least, took)
				}
				require.LessOrEqual(t, asked, opening+page.statements, page.path)
				read := shop.blocks(func() { shop.open(everything).see(page.path) })
				t.Logf("%-40s %6d blocks", page.path[:min(40, len(page.path))], read)
				require.LessOrEqual(t, read, mostBlocks, page.path)
				if measured {
					t.Logf("%-40s %2d statements %6.1f ms", page.path[:min(40, len(page.path))], asked, float64(least.Microseconds())/1000)
					assert.Less(t, least, pageTime, page.path)
				}
			}
		})
	}
}

// mostBlocks is how often a page may look into a block of PostgreSQL, where most rows are in one
// that no other of them is in: to see all messages would take more than twice as many.
const mostBlocks = 40_000

// blocks counts how often the statements that a function has sent look into a block; 0 where
// that cannot be asked for.
func (s *shop) blocks(f func()) (total int) {
	type sent struct {
		text string
		args []any
	}
	var mu sync.Mutex
	var all []sent
	s.faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
		if op.Kind == faultdb.Query {
			one := sent{text: op.Text}
			for _, a := range op.Args {
				one.args = append(one.args, a.Value)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, one)
		}
		return f
	})
	f()
	s.faults.Inject(nil)
	if s.engine != testdb.Postgres.Name {
		return 0
	}
	for _, one := range all {
		var text []byte
		require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+one.text, one.args...).Scan(&text))
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(s.t, json.Unmarshal(text, &plans))
		total += plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return total
}

func deepShop(t *testing.T, e testdb.Engine, n int) *shop {
	t.Helper()
	inner, err := e.Connect(e.Create(t))
	require.NoError(t, err)
	faults := faultdb.New(inner)
	db := sql.OpenDB(faults)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	shop := &shop{t: t, db: db, faults: faults, engine: e.Name}
	shop.mail = shop.queue("mail", chanq.Config{})
	shop.queue("line", chanq.Config{Kind: chanq.KindOrdered})
	for _, text := range deepFill[e.Dialect.Name()] {
		text = strings.NewReplacer("{n}", fmt.Sprint(n), "{some}", fmt.Sprint(fewOfThem)).Replace(text)
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	return shop
}
