package chanqfindings_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
)

// silent is a driver that does not connect until its channel is closed or, if it has none, until the context ends.
type silent chan struct{}

func (s silent) Driver() driver.Driver { return nil }

func (s silent) Connect(ctx context.Context) (driver.Conn, error) {
	if s == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	<-s
	return nil, errors.New("released")
}

// However many queues there are, the end of the time is the end, even for a driver that ignores contexts. What was not asked is told apart
// from what did not answer.
func TestExamineEndsWhenNothingAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		driver  silent
		dialect chanq.Dialect
		within  time.Duration
	}{
		"a driver that ends with the context":                  {nil, chanq.DialectPostgres, 2 * chanqfindings.Patience},
		"a driver that ignores contexts":                       {make(silent), chanq.DialectSQLServer, 2 * chanqfindings.Patience}, // the sessions leave it
		"a driver that ignores contexts, and a lock of a file": {make(silent), chanq.DialectSQLite, 2*chanqfindings.Patience + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.driver != nil {
					c.driver = make(silent) // of the bubble
					defer close(c.driver)
				}
				db := sql.OpenDB(c.driver)
				defer db.Close()
				queues := make([]string, 100)
				for i := range queues {
					queues[i] = fmt.Sprint("q", i)
				}
				began := time.Now()
				all := chanqfindings.Examine(t.Context(), db, chanq.Config{Dialect: c.dialect}, queues)
				require.Equal(t, c.within, time.Since(began))
				require.Len(t, all, len(queues))
				for i, q := range all {
					require.Equal(t, queues[i], q.Queue)
					require.ErrorIs(t, q.Err, context.DeadlineExceeded, q.Queue)
					if i < 4 || i >= 8 { // four are read at a time; four more may be asked as the time ends
						require.Equal(t, i < 4, !q.At.IsZero(), q.Queue)
						kind := chanqfindings.Unreachable
						if i >= 4 {
							kind = chanqfindings.Unknown
						}
						require.Equal(t, kind, chanqfindings.Of(q.Figures, chanqfindings.Limits{}, time.Now())[0].Kind, q.Queue)
					}
					require.Nil(t, q.Admin)
				}
			})
		})
	}
}
