package chanqweb_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// deepVariable sets the number of messages of the deep queue: 5000000 takes minutes, and some
// gigabytes of disk. -v then prints for each page the statements and milliseconds of the first view, and the
// median of further ones. Without it there are few messages, and the test counts what is read and does not
// measure time.
const deepVariable = "CHANQ_TEST_DEEP"

const (
	fewMessages = 100_000 // several times what any count or list reads
	pageTime    = 100 * time.Millisecond
	fewOfThem   = 3_000 // leased at the front, and scheduled at the end
)

// deepFill creates n messages in each of two queues, and a tenth as many dead ones, by statements of
// the engine: {n} is n.
var deepFill = map[string][]string{
	"sqlite": {
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
		INSERT INTO chanq_mail (id, due_at, body) SELECT CAST(printf('%016d', i) AS BLOB), 1700000000000 + i, CAST(printf('{"number":%0100d}', i) AS BLOB) FROM n`,
		`UPDATE chanq_mail SET attempts = 1, lease_until = 4000000000000, leased_by = x'00112233445566778899aabbccddeeff' WHERE due_at <= 1700000000000 + {some}`,
		`UPDATE chanq_mail SET due_at = due_at + 2200000000000 WHERE due_at > 1700000000000 + {n} - {some}`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n} / 10)
		INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
		SELECT CAST(printf('%016d', i) AS BLOB), 0, 1700000000000, 1700000000000 + i, 1, 1, 10, 'kind ' || char(65 + i % 20) || ' of order ' || i || ' is unknown', zeroblob(500) FROM n`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n} / 5)
		INSERT INTO chanq_line (id, due_at, slot, order_key, body) SELECT CAST(printf('%016d', i) AS BLOB), 1700000000000, i % 64, 'key ' || (i % 1000), zeroblob(100) FROM n`,
	},
	"postgres": {
		`INSERT INTO chanq_mail (id, due_at, body) SELECT lpad(to_hex(i), 32, '0')::uuid, 1700000000000 + i, convert_to(format('{"number":%s}', lpad(i::text, 100, '0')), 'UTF8') FROM generate_series(1, {n}) AS i`,
		`UPDATE chanq_mail SET attempts = 1, lease_until = 4000000000000, leased_by = '00112233-4455-6677-8899-aabbccddeeff' WHERE due_at <= 1700000000000 + {some}`,
		`UPDATE chanq_mail SET due_at = due_at + 2200000000000 WHERE due_at > 1700000000000::bigint + {n} - {some}`,
		`INSERT INTO chanq_mail__dead (id, priority, enqueued_at, ended_at, cause, fence, attempts, last_error, body)
		SELECT lpad(to_hex(i), 32, '0')::uuid, 0, 1700000000000, 1700000000000 + i, 1, 1, 10, 'kind ' || chr(65 + i % 20) || ' of order ' || i || ' is unknown', convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, {n} / 10) AS i`,
		`INSERT INTO chanq_line (id, due_at, seq, slot, order_key, body) SELECT lpad(to_hex(i), 32, '0')::uuid, 1700000000000, i, i % 64, 'key ' || (i % 1000), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, {n} / 5) AS i`,
		`ANALYZE chanq_mail`, `ANALYZE chanq_mail__dead`, `ANALYZE chanq_line`,
	},
}

// patiently lets a page wait for a slow machine.
func patiently(c *chanqweb.Config) { c.Timeout = time.Minute }

// Whatever a queue contains, a page runs the same few queries, which read a bounded part of it. With
// millions of messages each query takes less than a tenth of a second.
func TestAPageOfADeepQueueReadsNoMoreThanAnother(t *testing.T) {
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
			// A new page has no cached figures, and has to open a queue first.
			opening := shop.statements(func() { shop.open(everything, patiently).see("/q/mail/messages?state=done") }) - 1
			var plans strings.Builder
			for _, page := range []struct {
				path       string
				statements int
				blocks     int // of PostgreSQL: 1.5 times the number measured with few messages
			}{
				{"/", 1 + 2 + 2 + 2*15 + opening, 21_500},       // the names; of two queues the figures, the last hour and what findings need, with the lock of the file
				{"/q/mail/", 6 + 20, 14_500},                    // figures, the estimate, the time, consumers, pause, history; what findings need
				{"/q/mail/messages?state=ready", 1 + 4, 27_500}, // the first 3,000 are leased
				{"/q/mail/messages?state=leased", 1, 500},
				{"/q/mail/messages?state=scheduled", 1, 450},
				{"/q/mail/messages?state=dead", 1, 120}, // 40 to 72: planning reads the catalog
				{"/q/mail/messages?state=done", 1, 120},
				{"/q/mail/messages?state=ready&from=ready.0." + strconv.FormatInt(1_700_000_000_000+int64(n)/2, 10) + ".00000000-0000-7000-8000-000000000000", 1, 400},
				{"/q/mail/failures", 3 + 10, 20_600}, // of the scheduled messages ten parts
				{"/q/mail/consumers", 3, 9_000},
				{"/q/line/", 6 + 20, 17_000},
				{"/q/line/messages?state=ready", 2, 10_500},
				{"/q/line/messages?state=leased", 2, 10_500},
				{"/q/line/slots", 1 + 6, 35_000}, // the slots, and of three states the first
			} {
				asked, took, least := 0, time.Duration(0), time.Hour
				for range 3 { // the first may have to read from the disk
					s := shop.open(everything, patiently)
					asked = shop.statements(func() {
						began := time.Now()
						s.see(page.path)
						took = time.Since(began)
					})
					least = min(least, took)
				}
				require.LessOrEqual(t, asked, opening+page.statements, page.path)
				sent := shop.sent(func() {
					s := shop.open(everything, patiently)
					s.see(page.path)
					if page.path == "/" { // it does not wait long for figures, and the second visit waits for the same read
						s.see(page.path)
					}
				})
				switch e.Name {
				case testdb.Postgres.Name:
					read := shop.blocks(sent)
					t.Logf("%-40s %6d blocks", page.path[:min(40, len(page.path))], read)
					if !measured { // with millions of messages the trees have one more level
						assert.LessOrEqual(t, read, page.blocks, page.path)
					}
				case testdb.SQLite.Name:
					fmt.Fprintf(&plans, "%s\n", strings.ReplaceAll(page.path, strconv.FormatInt(1_700_000_000_000+int64(n)/2, 10), "MIDDLE"))
					for _, line := range shop.plans(sent) {
						fmt.Fprintf(&plans, "  %s\n", line)
					}
				}
				if measured {
					site, again := shop.open(everything, patiently), []time.Duration{}
					for range 21 {
						began := time.Now()
						site.see(page.path)
						again = append(again, time.Since(began))
					}
					slices.Sort(again)
					t.Logf("| %s | %d | %.1f | %.1f |", page.path[:min(40, len(page.path))], asked, float64(least.Microseconds())/1000, float64(again[len(again)/2].Microseconds())/1000)
					most := pageTime
					if page.path == "/q/line/slots" {
						most *= 3 // it runs seven queries
					}
					assert.Less(t, least, most, page.path)
				}
			}
			if e.Name == testdb.SQLite.Name {
				requireGolden(t, filepath.Join("testdata", "plans-sqlite.txt"), plans.String())
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden files again")

// requireGolden compares a text with a file, which is reviewed like code.
func requireGolden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test ./chanqweb -run DeepQueue -update rewrites it")
}

// query is a statement that a page has sent.
type query struct {
	text string
	args []any
}

// sent returns the queries that a function has sent.
func (s *shop) sent(f func()) (all []query) {
	var mu sync.Mutex
	s.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
		if op.Kind == faultdb.Query {
			one := query{text: op.Text}
			for _, a := range op.Args {
				one.args = append(one.args, a.Value)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, one)
		}
		return f
	})
	defer s.Faults.Inject(nil)
	f()
	return all
}

// blocks counts how often queries access a block of PostgreSQL. Equal ones count once: on a slow machine the figures are read again.
func (s *shop) blocks(queries []query) (total int) {
	seen := map[string]bool{}
	for _, one := range queries {
		if key := fmt.Sprint(one.text, one.args); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		var text []byte
		require.NoError(s.T, s.DB.QueryRowContext(s.T.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+one.text, one.args...).Scan(&text))
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		require.NoError(s.T, json.Unmarshal(text, &plans))
		total += plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return total
}

// plans returns the plans by which queries read tables of SQLite and their indexes, each once.
func (s *shop) plans(queries []query) (lines []string) {
	for _, one := range queries {
		rows, err := s.DB.QueryContext(s.T.Context(), "EXPLAIN QUERY PLAN "+one.text, one.args...)
		require.NoError(s.T, err, one.text)
		for rows.Next() {
			var id, parent, unused int
			var line string
			require.NoError(s.T, rows.Scan(&id, &parent, &unused, &line))
			if (strings.Contains(line, "chanq_") || strings.Contains(line, "B-TREE")) && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		require.NoError(s.T, rows.Err())
		require.NoError(s.T, rows.Close())
	}
	slices.Sort(lines) // readers send their queries simultaneously
	return lines
}

func deepShop(t *testing.T, e testdb.Engine, n int) *shop {
	t.Helper()
	shop := &shop{webshop.New(t, e)}
	shop.DB.SetMaxIdleConns(16) // a new connection has statements of its own
	shop.Queue("line", chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered}})
	for _, text := range deepFill[e.Dialect.Name()] {
		text = strings.NewReplacer("{n}", fmt.Sprint(n), "{some}", fmt.Sprint(fewOfThem)).Replace(text)
		_, err := shop.DB.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	return shop
}
