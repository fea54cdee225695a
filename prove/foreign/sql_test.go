package foreign

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/prove/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// block is a block of code of the document.
type block struct {
	text  string
	sends int // messages that it adds
}

var (
	fence   = regexp.MustCompile("(?ms)^```(sql|yaml) (\\w+)(?: sends=(\\d+))?\n(.*?)^```$")
	byQuery = regexp.MustCompile(`(?m)^ *query: (.*)$`)
)

// blocks returns the document's blocks for a dialect. Of YAML they are the queries.
func blocks(t *testing.T, dialect string) (list []block) {
	t.Helper()
	document, err := os.ReadFile("../../docs/guides/sql.md")
	require.NoError(t, err)
	known := 0
	for _, m := range fence.FindAllStringSubmatch(string(document), -1) {
		known++
		if m[2] != dialect {
			continue
		}
		b := block{text: m[4]}
		if m[1] == "yaml" {
			query := byQuery.FindStringSubmatch(b.text)
			require.NotNil(t, query, b.text)
			b.text = query[1] + ";\n"
		}
		if m[3] != "" {
			b.sends, err = strconv.Atoi(m[3])
			require.NoError(t, err)
		}
		list = append(list, b)
	}
	all, texts := strings.Count("\n"+string(document), "\n```"), strings.Count(string(document), "\n```text\n")
	require.Equal(t, all-2*texts, 2*known, "each block names its dialect")
	require.NotEmpty(t, list)
	return list
}

type order struct {
	N    int    `json:"n"`
	Name string `json:"name"`
}

// shop is a database with the two queues of the document.
type shop struct {
	*testdb.World
	orders, payments *chanq.Queue[order]
}

func open(t *testing.T, e testdb.Engine) *shop {
	e.Require(t)
	s := &shop{World: testdb.New(t, e)}
	lines := chanq.Config{Spec: chanq.Spec{Kind: chanq.KindOrdered, Slots: 64}}
	s.orders = testdb.QueueOf[order](s, "orders", chanq.Config{})
	s.payments = testdb.QueueOf[order](s, "payments", lines)
	s.face("orders", chanq.Config{})
	s.face("payments", lines)
	return s
}

func (s *shop) face(queue string, cfg chanq.Config) {
	texts, err := chanq.View(s.Engine.ChanqDialect(), queue, cfg)
	require.NoError(s, err)
	if s.Engine.Dialect.Name() != "sqlite" {
		procedures, err := chanq.Procedures(s.Engine.ChanqDialect(), queue, cfg)
		require.NoError(s, err)
		texts = append(texts, procedures...)
	}
	for _, text := range texts {
		s.Exec(text)
	}
}

// waiting returns the number of messages.
func (s *shop) waiting() int {
	n := 0
	for _, q := range []*chanq.Queue[order]{s.orders, s.payments} {
		stats := testdb.Stats(s, q)
		n += stats.Ready + stats.Scheduled
	}
	return n
}

// run runs all of the document, and checks the result of each block.
func (s *shop) run(client func(text string)) {
	roles := s.roles()
	for _, b := range blocks(s.T, s.Engine.Dialect.Name()) {
		was := s.waiting()
		client(roles.Replace(b.text))
		require.Equal(s, b.sends, s.waiting()-was, "%s", b.text)
	}
	s.consume()
}

// roles renames the roles of the document for this test: on PostgreSQL all databases share one list of roles.
func (s *shop) roles() *strings.Replacer {
	if s.Engine.Dialect.Name() != "postgres" {
		return strings.NewReplacer()
	}
	var pairs []string
	for _, role := range []string{"chanq_sender", "chanq_writer", "chanq_reader"} {
		own := fmt.Sprintf("%s_%x", role, chanq.NewID())
		pairs = append(pairs, role, own)
		s.Cleanup(func() {
			s.Exec("DROP OWNED BY " + own)
			s.Exec("DROP ROLE " + own)
		})
	}
	return strings.NewReplacer(pairs...)
}

// consume handles all due messages in Go.
func (s *shop) consume() {
	names := map[int]string{}
	ready := testdb.Stats(s, s.orders).Ready
	require.GreaterOrEqual(s, ready, 2)
	c := testdb.Start(s, s.orders, chanq.ConsumerConfig{})
	for _, l := range testdb.Take(s, c, ready) {
		names[l.Body.N] = l.Body.Name
		require.NoError(s, l.Ack())
		require.NoError(s, l.Wait(s.Soon()))
	}
	require.Equal(s, "Łódź", names[2])
	require.Contains(s, names, 1)
	entries, err := testdb.Peek(s.Soon(), s.orders, chanqadmin.StateScheduled, 10)
	require.NoError(s, err)
	for _, e := range entries {
		require.Greater(s, e.DueAt, time.Now().Add(-time.Hour), e.Body)
	}
	require.Zero(s, testdb.Stats(s, s.orders).Dead)

	lines := testdb.Start(s, s.payments, chanq.ConsumerConfig{})
	l := testdb.Take(s, lines, 1)[0]
	require.Equal(s, "customer 7", l.Key)
	require.Equal(s, order{N: 1}, l.Body)
	testdb.Send(s, s.payments, chanq.Message[order]{Key: "customer 7", Body: order{N: 2}})
	e, err := testdb.Admin(s.payments).Get(s.Soon(), l.ID)
	require.NoError(s, err)
	all, err := testdb.Peek(s.Soon(), s.payments, chanqadmin.StateReady, 10)
	require.NoError(s, err)
	for _, other := range all {
		require.Equal(s, e.Slot, other.Slot, "one line")
	}
	require.NoError(s, l.Ack())
	second := testdb.Take(s, lines, 1)[0]
	require.Equal(s, order{N: 2}, second.Body)
	require.NoError(s, second.Ack())
	require.NoError(s, second.Wait(s.Soon()))
}

func TestEveryStatementOfTheDocumentRunsWithTheDriversOfGo(t *testing.T) {
	testdb.OnEach(t, testdb.Engines(), func(w *testdb.World) {
		s := open(w.T, w.Engine)
		conn, err := s.DB.Conn(s.Soon())
		require.NoError(s, err)
		defer conn.Close()
		s.run(func(text string) {
			for batch := range strings.SplitSeq(text, "\nGO\n") {
				_, err := conn.ExecContext(s.Soon(), batch)
				require.NoError(s, err, batch)
			}
		})
	})
}
