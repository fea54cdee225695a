package sqlbatch_test

import (
	"reflect"
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

func TestARowWithMoreThanAnIDAndABodyIsNotPlain(t *testing.T) {
	require.True(t, (&sqlbatch.Row{ID: [16]byte{1}, Body: []byte{1}}).Plain())
	for i := range reflect.TypeFor[sqlbatch.Row]().NumField() {
		row := sqlbatch.Row{}
		switch f := reflect.ValueOf(&row).Elem().Field(i); {
		case f.CanInt():
			f.SetInt(1)
		case f.CanUint():
			f.SetUint(1)
		case f.Kind() == reflect.String:
			f.SetString("x")
		case f.Kind() == reflect.Slice:
			f.SetBytes([]byte{})
		}
		name := reflect.TypeFor[sqlbatch.Row]().Field(i).Name
		require.Equal(t, name == "ID" || name == "Body", row.Plain(), name)
	}
}
