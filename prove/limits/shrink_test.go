package limits_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/prove/testdb"
)

func TestTheSpaceOfManyDeletedMessagesIsReturnedToTheFileSystem(t *testing.T) {
	testdb.Long(t)
	const messages, size = 1000, 50_000
	path := filepath.Join(t.TempDir(), "queue.db")
	db, err := embedded.Open(path)
	require.NoError(t, err)
	defer db.Close()
	bytes := func() int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	cfg := chanq.Config{Spec: chanq.Spec{Retain: time.Second}} // consumers clean up about once per second
	require.NoError(t, chanq.Migrate(t.Context(), db, "work", cfg))
	q := testdb.OpenOn[[]byte](t, db, "work", cfg)
	ms := make([]chanq.Message[[]byte], messages)
	for i := range ms {
		ms[i].Body = make([]byte, size)
	}
	testdb.Send(t, q, ms...)
	_, err = db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(t, err)
	require.Greater(t, bytes(), int64(messages*size))

	c := testdb.Start(t, q, chanq.ConsumerConfig{})
	require.NoError(t, chanq.Ack(testdb.Soon(t), testdb.Take(t, c, messages)...))
	testdb.Eventually(t, "the file is small", func() bool {
		_, err := db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(PASSIVE)") // as a commit does when the log has 4 MiB
		return err == nil && bytes() < 5_000_000
	})
	sent := testdb.Send(t, q, chanq.Message[[]byte]{Body: []byte("after it")})
	l := testdb.Take(t, c, 1)[0]
	require.Equal(t, sent[0], l.ID)
	require.NoError(t, l.Ack())
	require.NoError(t, c.Shutdown(testdb.Soon(t)))
}
