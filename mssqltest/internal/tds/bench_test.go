package tds_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/mssqltest/internal/tds"
)

// BenchmarkCall is a round trip of the driver through the server with one value each way: the time that the emulator's
// wire adds to every measurement.
func BenchmarkCall(b *testing.B) {
	db := open(b, serve(b, &fakeHandler{run: echo(2)}, tds.Options{}))
	body := make([]byte, 1000)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		var back any
		require.NoError(b, queryOne(ctx, db, &back, "select @p1", body))
	}
}
