package chanqjobs

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/prove/testdb"
)

// AddTx draws again if a job has one of its numbers.
func TestNumbersThatAJobHasAreTaken(t *testing.T) {
	kind := Define[int]("piece")
	testdb.OnEach(t, []testdb.Engine{testdb.Memory, testdb.Emulator, testdb.Postgres}, func(w *testdb.World) {
		q := testdb.QueueOf[Job](w, "jobs", chanq.Config{Codec: Codec(nil)})
		require.NoError(w, Migrate(w.Soon(), w.Tables(), chanq.Config{}))
		b := NewBatches(q)
		batch := NewBatch()
		require.NoError(w, chanq.InTx(w.Soon(), w.DB, func(ctx context.Context, tx *sql.Tx) error {
			if err := b.SendTx(ctx, tx, batch, kind.New(0), kind.New(1)); err != nil {
				return err
			}
			if err := b.send(ctx, tx, batch, addedFrom+7, []chanq.Message[Job]{kind.New(2), kind.New(3)}); err != nil {
				return err
			}
			for first, free := range map[uint64]bool{5: true, 6: false, 7: false, 8: false, 9: true} {
				found, err := b.hold(ctx, tx, batch, addedFrom+first, 2)
				require.NoError(w, err)
				require.Equal(w, free, found, first)
			}
			return nil
		}))
		require.Equal(w, 3, testdb.Counted(w, q).Ready)
		ids := map[chanq.ID]bool{numbered(batch, 1): true, numbered(batch, addedFrom+7): true, numbered(batch, addedFrom+8): true}
		for _, l := range testdb.Lease(w, q, 3, 1<<40) {
			require.True(w, ids[l.ID], l.ID)
			require.NoError(w, l.Ack())
		}
	})
}

// The 34 bits after the time are random, so that processes that make batches in the same millisecond differ.
func TestTheIDsOfBatchesHave34RandomBits(t *testing.T) {
	var ones, zeros chanq.ID
	for i := range zeros {
		zeros[i] = 0xff
	}
	for range 200 {
		id := NewBatch()
		require.True(t, isBatch(id))
		require.Equal(t, numbered(id, 0), id)
		for i, b := range id {
			ones[i], zeros[i] = ones[i]|b, zeros[i]&b
		}
	}
	require.Equal(t, []byte{0x8f, 0xff, 0xbf, 0xff, 0xff, 0, 0, 0, 0, 0}, ones[6:])
	require.Equal(t, []byte{0x80, 0x00, 0x80, 0x00, 0x00, 0, 0, 0, 0, 0}, zeros[6:])
}
