package suite

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq/sqlbatch"
)

var histories = []test{
	{"AHistoryHasWhatFailedOrExpired", failuresAreKept},
	{"AHistoryMovesWithItsMessage", historiesMove},
	{"AHistoryIsBounded", historiesAreBounded},
}

var orderedHistories = []test{
	{"AHistoryOfAnOrderedQueueNamesTheOwnerOfTheSlot", ownersAreNamed},
}

// history returns the attempts of a message, each without the time of its end, which it checks.
func (w *world) history(n byte) (list []string) {
	w.Helper()
	text, _ := w.get(n)["history"].(string)
	for entry := range strings.SplitSeq(strings.TrimSuffix(text, "\x1e"), "\x1e") {
		if entry == "" {
			continue
		}
		at, rest, _ := strings.Cut(entry, " ")
		ended, err := strconv.ParseInt(at, 10, 64)
		require.NoError(w, err, entry)
		require.InDelta(w, w.now(), ended, 30_000, entry)
		list = append(list, rest)
	}
	return list
}

func failuresAreKept(w *world) {
	w.run(w.Join(sqlbatch.Consumer{ID: Consumer, Name: "web-6 ü", For: time.Hour}))
	nack := func(i sqlbatch.NackItem) {
		w.Helper()
		require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{i})), 1)
		require.Equal(w, []byte{1}, w.claim(1))
	}
	item := w.leased(1)[0]
	require.Nil(w, w.get(1)["history"])
	nack(sqlbatch.NackItem{Item: item, Took: 5100*time.Millisecond + 1, Error: "first\nline\x1e"})
	require.Equal(w, []string{"5101 web-6 ü\nfirst\nline "}, w.history(1))
	nack(sqlbatch.NackItem{Item: w.items(1)[0]})
	whole := []string{"0 web-6 ü\n", "5101 web-6 ü\nfirst\nline "}
	require.Equal(w, whole, w.history(1), "neither its error nor its time is known")
	require.Len(w, w.run(w.Snooze([]sqlbatch.NackItem{{Item: w.items(1)[0], Took: time.Second, Error: "busy"}})), 1)
	w.claim(1)
	require.Len(w, w.run(w.Release(Releases(w.items(1)))), 1)
	w.claim(1)
	require.Equal(w, whole, w.history(1), "these attempts do not count")
	now := w.now() / 1000
	w.exec("UPDATE chanq_orders SET fence = %d, lease_until = %s WHERE %s", (now-5)*1000<<sqlbatch.FenceBits+1, w.at(now-2), w.is(1))
	require.Equal(w, []byte{1}, w.rescue())
	require.Equal(w, append([]string{"3000 web-6 ü\n" + sqlbatch.TextExpired}, whole...), w.history(1))
	w.claim(1)
	w.run(w.Leave(Consumer))
	nack(sqlbatch.NackItem{Item: w.items(1)[0], Error: "last"})
	require.Equal(w, "0 \nlast", w.history(1)[0], "the consumer is not known")
}

func historiesMove(w *world) {
	failed := func(n byte) []string {
		w.Helper()
		w.run(w.Nack([]sqlbatch.NackItem{{Item: w.leased(n)[0], Error: "failed"}}))
		require.Equal(w, []byte{n}, w.claim(1))
		return []string{"0 \nfailed"}
	}
	before := failed(1)
	w.run(w.Archive(w.items(1)))
	require.Equal(w, list("done", true), []any{w.get(1)["state"], fmt.Sprint(before) == fmt.Sprint(w.history(1))})
	before = failed(2)
	w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(2)[0], Cause: expired, Error: "expired", Uncounted: true}}))
	require.Equal(w, before, w.history(2), "it was not delivered")
	before = failed(3)
	w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: w.items(3)[0], Cause: rejected, Error: "no", Took: time.Second}}))
	dead := append([]string{"1000 \nno"}, before...)
	require.Equal(w, dead, w.history(3))
	require.Len(w, w.run(w.Redrive(0, ids(3), sqlbatch.Window{})), 1)
	require.Equal(w, list("ready", 0), w.get(3).of("state", "attempts"))
	require.Equal(w, dead, w.history(3), "it did fail before")
}

func historiesAreBounded(w *world) {
	w.run(w.Join(sqlbatch.Consumer{ID: Consumer, Name: strings.Repeat("n", sqlbatch.MaxConsumerText), For: time.Hour}))
	long := strings.Repeat("é", sqlbatch.MaxError/2)
	item := w.leased(1)[0]
	for n := range 7 {
		require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: item, Took: 99 * time.Hour, Error: fmt.Sprint(n) + long[:2*(sqlbatch.MaxError/2-1)]}})), 1)
		require.Equal(w, []byte{1}, w.claim(1))
		item = w.items(1)[0]
	}
	text := w.get(1)["history"].(string)
	require.LessOrEqual(w, len([]rune(text)), sqlbatch.MostHistory)
	whole := strings.Split(text, "\x1e")
	whole = whole[:len(whole)-1]
	require.GreaterOrEqual(w, len(whole), 5)
	for n, entry := range whole {
		require.Equal(w, fmt.Sprint(7-1-n)+strings.Repeat("é", sqlbatch.MostText-1), strings.Split(entry, "\n")[1])
		require.Equal(w, "356400000 "+strings.Repeat("n", sqlbatch.MostName), strings.SplitN(strings.Split(entry, "\n")[0], " ", 2)[1])
	}
}

func ownersAreNamed(w *world) {
	w.joinAs(other, time.Hour)
	r := w.reader()
	me := nameOf(Consumer)
	w.line(0, "a", 1, 2)
	i := w.delivered(r, 1)[0]
	require.Len(w, w.run(w.Nack([]sqlbatch.NackItem{{Item: i.Item, Delivery: i.Delivery, Took: time.Second, Error: "failed"}})), 1)
	before := []string{"1000 " + me + "\nfailed"}
	require.Equal(w, before, w.history(1), "the delivery is not in the row")
	i = w.delivered(r, 1)[0]
	require.Len(w, w.run(w.ReleaseOrdered(Consumer, []sqlbatch.ReleaseItem{i}, false)), 1)
	require.Equal(w, before, w.history(1))
	i = w.delivered(r, 1)[0]
	require.Len(w, w.run(w.ReleaseOrdered(Consumer, []sqlbatch.ReleaseItem{i}, true)), 1)
	before = append([]string{"0 " + me + "\n" + sqlbatch.TextExpired}, before...)
	require.Equal(w, before, w.history(1))
	mark := func() {
		w.Helper()
		require.Len(w, w.run(w.MarkOrdered(Consumer, []sqlbatch.MarkItem{{Item: w.items(1)[0], SlotFence: r.Slots[0].Fence}})), 1)
	}
	mark()
	require.Equal(w, before, w.history(1), "it was not marked before")
	w.exec("UPDATE chanq_orders SET leased_by = %s WHERE %s", w.uuid(other), w.is(1))
	mark()
	before = append([]string{"0 " + nameOf(other) + "\n" + sqlbatch.TextExpired}, before...)
	require.Equal(w, before, w.history(1), "the mark of another consumer is an expired lease")
	i = w.delivered(r, 1)[0]
	require.Len(w, w.run(w.DeadLetter([]sqlbatch.DeadLetterItem{{Item: i.Item, Delivery: i.Delivery, Cause: rejected, Took: time.Second, Error: "no"}})), 1)
	require.Equal(w, append([]string{"1000 " + me + "\nno"}, before...), w.history(1))
}
