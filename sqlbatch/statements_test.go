package sqlbatch_test

import (
	"testing"

	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
)

func TestStatements(t *testing.T) {
	for _, e := range testdb.Engines() {
		t.Run(e.Name, func(t *testing.T) {
			e.Require(t)
			play := func(t *testing.T, test func(*testing.T)) { testdb.InBubble(t, e.Bubble, test) }
			suite.Run(t, e.Dialect, play, func(t *testing.T) suite.Database {
				w := testdb.New(t, e)
				return suite.Database{DB: w.Open(), Tables: w.Tables(), PlainOnly: e.PlainOnly}
			})
		})
	}
}
