package sqlbatch_test

import (
	"strings"
	"testing"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/chanq/chanq/sqlbatch/internal/suite"
	"github.com/chanq/chanq/sqlbatch/postgres"
	"github.com/chanq/chanq/sqlbatch/sqlite"
	"github.com/chanq/chanq/sqlbatch/sqlserver"
	"github.com/stretchr/testify/require"
)

func TestNoValueIsEverPartOfAText(t *testing.T) {
	for _, d := range []sqlbatch.Dialect{sqlserver.Dialect, postgres.Dialect, sqlite.Dialect} {
		plain := d.Queue(sqlbatch.Names{Queue: "orders"})
		for _, q := range []sqlbatch.Queue{plain, plain.InTx(), plain.SkipLocked(), plain.InTx().SkipLocked()} {
			plain, odd := suite.Calls(q, "a"), suite.Calls(q, suite.Hostile)
			for name := range plain {
				texts := suite.Texts(odd[name])
				require.Equal(t, suite.Texts(plain[name]), texts, "%s %s: the text depends on its values", d.Name(), name)
				for _, text := range texts {
					require.NotContains(t, strings.ToUpper(text), "H0STILE", "%s %s", d.Name(), name)
				}
			}
		}
	}
}
