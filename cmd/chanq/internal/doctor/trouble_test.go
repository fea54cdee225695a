package doctor_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/cmd/chanq/internal/doctor"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb/pgtest"
	"github.com/chanq/chanq/prove/trouble"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// findingsOf has the findings of the doctor in each situation: check and words. For SQLite,
// different findings follow the bar.
var findingsOf = map[string]string{
	"poison":    `dead: invoice `,
	"stuck":     `stuck: messages in hand have been leased for `,
	"dead":      `no-consumer: no consumer runs; 3,000 messages wait, the oldest for 6 h`,
	"slow":      `locks: nightly job (|locked: the file`,
	"forgotten": `long transactions: of web shop, idle in transaction, with rows of chanq_post locked|locked: the file`,
	"paused":    `paused: paused for `,
}

// Each situation is detected, with a remedy, and no finding is left once it is fixed.
func TestEachSituationIsFoundUntilItEnds(t *testing.T) {
	require.Len(t, findingsOf, len(trouble.Situations))
	for _, engine := range []string{"postgres", "sqlite"} {
		for _, s := range trouble.Situations {
			t.Run(engine+"/"+s.Name, func(t *testing.T) {
				t.Parallel()
				p, w := troubled(t, engine == "postgres")
				require.NoError(t, p.Fill(t.Context(), 3000))
				pg, lite, differs := strings.Cut(findingsOf[s.Name], "|")
				if differs && !p.Postgres {
					pg = lite
				}
				check, words, _ := strings.Cut(pg, ": ")
				ctx := context.WithoutCancel(t.Context())
				fix, err := s.Begin(ctx, p)
				require.NoError(t, err)
				var seen string
				require.Eventually(t, func() bool {
					seen = ""
					for _, f := range w.wrong(check) {
						require.NotEmpty(t, f.Remedy)
						seen += f.Found + "\n"
					}
					return strings.Contains(seen, words) && seen != ""
				}, 3*time.Minute, 50*time.Millisecond, check)
				end, err := fix(ctx)
				require.NoError(t, err)
				defer end()
				require.Eventually(t, func() bool { return len(w.wrong(check)) == 0 }, 3*time.Minute, 50*time.Millisecond, check)
			})
		}
	}
}

func troubled(t *testing.T, onPostgres bool) (*trouble.Place, *ward) {
	t.Helper()
	p := &trouble.Place{Queue: "post", Postgres: onPostgres}
	patient := doctor.Patient{Queues: []string{"post"}, Long: 500 * time.Millisecond, Wait: 200 * time.Millisecond, Look: 2 * time.Second, Limits: chanqfindings.Limits{Stuck: 2 * time.Second}}
	if onPostgres {
		config := pgtest.Config(t)
		p.DB, patient.Dialect = stdlib.OpenDB(*config), postgres.Dialect
	} else {
		db, err := embedded.Open(filepath.Join(t.TempDir(), "post.db"))
		require.NoError(t, err)
		p.DB, patient.Dialect = db, sqlite.Dialect
	}
	t.Cleanup(func() { p.DB.Close() })
	patient.DB = p.DB
	return p, &ward{t, patient}
}
