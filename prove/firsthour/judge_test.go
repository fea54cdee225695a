package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/instance"
)

// goodPlan is that of a claim, as it should be.
func goodPlan(t *testing.T) string { return testdata(t, "plan.xml") }

func TestAGoodPlanIsRefusedNothing(t *testing.T) {
	j, err := judge("claim", goodPlan(t))
	require.NoError(t, err)
	require.Equal(t, &judgement{spools: []string{"Eager Spool of rows of 65 B"}, sizeKB: 88, compileMS: 7}, j)
}

// Each change of the good plan is one that no statement of a queue may have.
func TestAPlanIsRefusedWhatKeepsLocksOrReadsMore(t *testing.T) {
	for _, c := range []struct{ was, is, found string }{
		{`PhysicalOp="Index Seek"`, `PhysicalOp="Index Scan"`, "scan: Index Scan of chanq_orders"},
		{`PhysicalOp="Clustered Index Seek"`, `PhysicalOp="Clustered Index Scan"`, "scan: Clustered Index Scan of chanq_orders"},
		{`PhysicalOp="Top" LogicalOp="Top"`, `PhysicalOp="Sort" LogicalOp="TopN Sort"`, "sort: TopN Sort"},
		{`<NestedLoops Optimized="0">`, `<NestedLoops Optimized="0" WithOrderedPrefetch="1">`, "prefetch: a nested loops join prefetches"},
		{`<NestedLoops Optimized="0">`, `<NestedLoops Optimized="true">`, "sort: a nested loops join may sort its outer side"},
		{`<NestedLoops Optimized="0">`, `<NestedLoops WithUnorderedPrefetch="true">`, "prefetch: a nested loops join prefetches"},
		{`PhysicalOp="Nested Loops"`, `PhysicalOp="Hash Match"`, "join: Hash Match"},
		{`LogicalOp="Eager Spool" EstimateRows="1" AvgRowSize="65"`, `LogicalOp="Eager Spool" EstimateRows="1" AvgRowSize="4059"`, "spool: Eager Spool of rows of 4059 B"},
		{`SerialRequiredMemory="0"`, `SerialRequiredMemory="512"`, "memory grant: asks for 512 kB"},
		{`DMLRequestSort="0"`, `DMLRequestSort="1"`, "sort: the change wants its rows sorted"},
		{`<MemoryGrantInfo`, `<MissingIndexes><MissingIndexGroup Impact="91"/></MissingIndexes><MemoryGrantInfo`, "missing index: an index would help by 91 %"},
	} {
		plan := strings.Replace(goodPlan(t), c.was, c.is, 1)
		require.NotEqual(t, goodPlan(t), plan)
		j, err := judge("claim", plan)
		require.NoError(t, err)
		require.Equal(t, []string{c.found}, j.refused, c.is)
	}
}

func TestAnOperatorsStatementMaySortAndReadSmallTables(t *testing.T) {
	sorted := strings.Replace(goodPlan(t), `PhysicalOp="Top" LogicalOp="Top"`, `PhysicalOp="Sort" LogicalOp="TopN Sort"`, 1)
	j, err := judge("browse-dead", sorted)
	require.NoError(t, err)
	require.Empty(t, j.refused)
	require.Equal(t, []string{"sort: TopN Sort"}, j.accepted)

	scanned := strings.Replace(goodPlan(t), `PhysicalOp="Index Seek"`, `PhysicalOp="Index Scan"`, 1)
	j, err = judge("browse-dead", scanned)
	require.NoError(t, err)
	require.Equal(t, []string{"scan: Index Scan of chanq_orders"}, j.refused, "no statement scans the messages")

	j, err = judge("queues", strings.Replace(scanned, `Table="[chanq_orders]" Index="[IX_chanq_orders__due]"`, `Table="[chanq__queues]"`, 1))
	require.NoError(t, err)
	require.Empty(t, j.refused)
}

func TestWhatIsNoPlanIsAnError(t *testing.T) {
	for _, text := range []string{"", "no plan", "<html></html>"} {
		_, err := judge("claim", text)
		require.Error(t, err, text)
	}
}

func TestAPlanWithAScanIsADifference(t *testing.T) {
	scanned := strings.Replace(goodPlan(t), `PhysicalOp="Index Seek"`, `PhysicalOp="Index Scan"`, 1)
	report := differs(t, "plans", func(r instance.Request) (instance.Answer, bool) {
		return instance.Answer{Rows: [][]any{{scanned}}}, r.Batch && strings.HasPrefix(r.Text, "DECLARE @a varbinary(8000);")
	})
	require.Contains(t, report, "| unversioned, empty: ack | no such operator | scan: Index Scan of chanq_orders | **DIFFERS** |")
}

func TestAHintThatNoPlanCanFollowIsADifference(t *testing.T) {
	report := differs(t, "plans", func(r instance.Request) (instance.Answer, bool) {
		return instance.Answer{Number: 8622, Message: "Query processor could not produce a query plan because of the hints defined in this query."}, r.Batch && strings.HasPrefix(r.Text, "DECLARE @n int, @lease_days")
	})
	require.Contains(t, report, "| ordered, filled: texts with a plan as expected |")
	require.Contains(t, report, "| unversioned, empty: claim | a plan | error 8622: ")
}
