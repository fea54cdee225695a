package batch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// counted counts the calls of place.
type counted struct {
	Place
	uses *int
}

func (c *counted) place() *Place { *c.uses++; return &c.Place }

// The cost of a withdrawal does not depend on the number of waiting items, in whatever order they are
// withdrawn.
func TestTheCostOfAWithdrawalIsConstant(t *testing.T) {
	const most = 20_000
	for name, order := range map[string]func(i int) int{
		"first to last": func(i int) int { return i },
		"last to first": func(i int) int { return most - 1 - i },
		"mixed":         func(i int) int { return i * 7919 % most },
	} {
		uses := 0
		items := make([]*counted, most)
		for i := range items {
			items[i] = &counted{uses: &uses}
		}
		w := New(Config[*counted]{Full: []int{10}, Workers: 1, Loop: Loop{}})
		require.NoError(t, w.AddAll(most, func(i int) *counted { return items[i] }, Awaited))
		uses = 0
		for i := range most {
			require.True(t, w.Withdraw(items[order(i)]))
		}
		require.Less(t, uses, 20*most, name)
		require.Zero(t, w.Stats())
		w.Close()
		w.Run(context.Background())
	}
}
