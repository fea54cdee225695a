package sqlbatch_test

import (
	"strings"
	"testing"

	"github.com/chanq/chanq/sqlbatch"
	"github.com/stretchr/testify/require"
)

func TestCheckNamesAdmitsPlainQueueNamesOnly(t *testing.T) {
	for _, queue := range []string{"a", "orders", "a1_b", "dead", "done", "queues", "orders_dead", "a_1", strings.Repeat("q", sqlbatch.MaxName)} {
		require.NoError(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: queue}), queue)
	}
	for _, queue := range []string{"", "1a", "_a", "Orders", "a-b", "a b", "a]", "a'", "é", "a\n", strings.Repeat("q", sqlbatch.MaxName+1), "orders__dead", "orders_", "_queues"} {
		require.Error(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: queue}), queue)
	}
}

func TestCheckNamesBoundsTheSchema(t *testing.T) {
	for _, schema := range []string{"", "dbo", "we]ird 'name'; --", strings.Repeat("s", 63)} {
		require.NoError(t, sqlbatch.CheckNames(sqlbatch.Names{Schema: schema, Queue: "a"}), schema)
	}
	for _, schema := range []string{"a\x00b", strings.Repeat("s", 64), "a\nGO\nb", "a\rb", "a\tb", "\x1b[2J", "a\x7f", "a\u0085b", "a\u2028b", "a\u2029b", "\xff"} {
		err := sqlbatch.CheckNames(sqlbatch.Names{Schema: schema, Queue: "a"})
		require.ErrorContains(t, err, "without control characters and line breaks", "%q", schema)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestCheckNamesBoundsTheSlots(t *testing.T) {
	for _, slots := range []int{0, 1, sqlbatch.MaxSlots} {
		require.NoError(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: "a", Slots: slots}))
	}
	for _, slots := range []int{-1, sqlbatch.MaxSlots + 1} {
		require.Error(t, sqlbatch.CheckNames(sqlbatch.Names{Queue: "a", Slots: slots}))
	}
}
