package chanqweb_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
	"github.com/chanq/chanq/chanqweb/internal/webshop"
	"github.com/chanq/chanq/prove/testdb"
	"github.com/chanq/chanq/prove/testdb/faultdb"
)

// divided is a shop with queues in two shards, each of which may go away: the plain queue spread has
// a dead message in each, and ready ones; the ordered queue lined has ready ones.
type divided struct {
	*shop
	west   *faultdb.Connector // east is the shop's
	shards []chanq.Shard
	dead   []chanq.ID // of spread, by shard
}

func newDivided(t *testing.T) *divided {
	t.Helper()
	shop := newShop(t)
	other := testdb.New(t, testdb.Memory)
	d := &divided{shop: shop, shards: []chanq.Shard{{Name: "east", DB: shop.DB}, {Name: "west", DB: other.Open()}}}
	d.west = other.Faults
	spread := d.queue("spread", chanq.Config{})
	for i := range spread.Shards() {
		d.dead = append(d.dead, d.Kill(spread.Shard(i), "x", nil, fmt.Errorf("no stock in %s", d.shards[i].Name))...)
	}
	lined := d.queue("lined", chanq.Config{Kind: chanq.KindOrdered, Slots: 2})
	for i := range 20 {
		d.Send(spread, chanq.Message[[]byte]{Body: []byte("x"), DedupKey: fmt.Sprint(i)})
		d.Send(lined, chanq.Message[[]byte]{Body: []byte("x"), Key: fmt.Sprint("key ", i)})
	}
	return d
}

func (d *divided) queue(name string, cfg chanq.Config) *chanq.Queue[[]byte] {
	d.T.Helper()
	require.NoError(d.T, chanq.MigrateShards(d.T.Context(), d.shards, name, cfg))
	q, err := chanq.OpenShards[[]byte](d.T.Context(), d.shards, name, cfg)
	require.NoError(d.T, err)
	return q
}

func (d *divided) site() *site {
	return d.open(everything, func(c *chanqweb.Config) { c.Shards, c.Timeout = d.shards, patience })
}

// Each page shows what the shard has that answers, and names the one that does not: whichever it is,
// whether it fails or hangs, and whether the page was open before or comes later.
func TestEachPageShowsWhatTheOtherShardHas(t *testing.T) {
	for _, away := range []struct {
		name, other string
		at          func(*divided) *faultdb.Connector
		i           int
	}{{"west", "east", func(d *divided) *faultdb.Connector { return d.west }, 0}, {"east", "west", func(d *divided) *faultdb.Connector { return d.Faults }, 1}} {
		for how, fault := range map[string]faultdb.Fault{"fails": faultdb.Fail(errors.New("gone")), "hangs": faultdb.Hang()} {
			for when, before := range map[string]bool{"while it is open": true, "before it comes": false} {
				if how == "hangs" && !before {
					continue // opening waits for five seconds, which tests of the queue see
				}
				t.Run(fmt.Sprintf("%s %s %s", away.name, how, when), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						d := newDivided(t)
						s, at := d.site(), away.at(d)
						if before {
							s.see("/q/spread/")
							s.see("/q/lined/")
						}
						at.Inject(func(faultdb.Op) faultdb.Fault { return fault })
						defer at.Inject(nil)
						for path, shows := range map[string]string{
							"/":                                      `>spread</a>`,
							"/q/spread/":                             "Ready",
							"/q/spread/messages?state=ready":         `<td data-label="Shard">` + away.other + `</td>`,
							"/q/spread/messages?state=dead":          "no stock in " + away.other,
							"/q/spread/failures":                     "no stock in " + away.other,
							"/q/spread/members":                      "<h1>Members</h1>",
							"/q/spread/m/" + d.dead[away.i].String(): "no stock in " + away.other,
							"/q/lined/":                              "Ready",
							"/q/lined/slots":                         `<td data-label="Shard">` + away.other + `</td>`,
							"/q/lined/messages?state=ready":          `<td data-label="Shard">` + away.other + `</td>`,
						} {
							if how == "hangs" && !slices.Contains([]string{"/", "/q/spread/", "/q/spread/failures"}, path) {
								continue // each is waited for
							}
							notice := "Shard " + away.name + " does not answer"
							if strings.Contains(path, "/m/") { // that one is found, and nothing of it missing
								notice = ""
							}
							var text string
							require.Eventually(t, func() bool { // figures may be a second old
								text = s.see(path)
								return strings.Contains(text, notice)
							}, patience, tick, path)
							main := strings.Index(text, "<main")
							require.Contains(t, text[main:], shows, path)
						}
						r := s.get("/q/spread/m/" + d.dead[1-away.i].String())
						require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
						require.Contains(t, r.text, "Not all shards answer")
						require.NotContains(t, s.log.String(), "panic")
					})
				})
			}
		}
	}
}

func TestAllShardsAwayIsNoEmptyQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDivided(t)
		s := d.site()
		s.see("/q/spread/")
		for _, at := range []*faultdb.Connector{d.west, d.Faults} {
			at.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(errors.New("gone")) })
			defer at.Inject(nil)
		}
		for _, path := range []string{"/", "/q/spread/", "/q/spread/failures", "/q/spread/members", "/q/lined/slots"} {
			require.Equal(t, http.StatusServiceUnavailable, s.get(path).StatusCode, path)
		}
	})
}

// Who follows the figures sees a shard go, and come back.
func TestWhoFollowsSeesAShardGoAndComeBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDivided(t)
		for _, path := range []string{"/live", "/q/spread/live?span=hour"} {
			next, end := d.site().follow(path)
			const notice = "Shard west does not answer"
			tag := notice
			require.NotContains(t, next(), notice)
			d.west.Inject(func(faultdb.Op) faultdb.Fault { return faultdb.Fail(errors.New("gone")) })
			for !strings.Contains(next(), tag) { // or the test runs out of its time
			}
			d.west.Inject(nil)
			for strings.Contains(next(), tag) {
			}
			end()
		}
	})
}

// What is done while a shard is away is done where it can be, and the page says that it is not all.
func TestAChangeIsMadeInTheShardsThatAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDivided(t)
		s := d.site()
		token := s.token("/q/spread/")
		key := causeKey(t, s.see("/q/spread/failures"), "no stock in east")
		for _, fault := range []faultdb.Fault{faultdb.Hang(), faultdb.Fail(errors.New("gone"))} {
			d.west.Inject(func(faultdb.Op) faultdb.Fault { return fault })
			began := time.Now()
			r := s.post("spread", "do", "pause", "token", token)
			require.Equal(t, http.StatusOK, r.StatusCode)
			require.Contains(t, r.text, "Not all shards have answered: do it once more")
			require.Less(t, time.Since(began), 40*time.Second, "a change of all messages of a cause may take a minute")
		}
		r := s.post("spread", "do", "redrive", "cause", key, "back", "failures", "token", token)
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Contains(t, r.text, "One message is ready again, with no attempts counted. Not all shards have answered")
		d.west.Inject(nil)
		r = s.post("spread", "do", "resume", "token", token)
		require.NotContains(t, r.text, "Not all shards")
		q := d.queue("spread", chanq.Config{})
		require.Eventually(t, func() bool { return d.Stats(q).Dead == 1 && !d.Stats(q).Paused }, patience, tick)
	})
}

// Rates are of just now, or it is said since when there are none.
func TestRatesThatAreOldAreNotShownAsThoseOfNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		end := time.Now()
		shown := func(until time.Time, path string) string {
			return shop.open(everything, func(c *chanqweb.Config) { c.History = webshop.SamplesUntil(until) }).see(path)
		}
		fresh := shown(end, "/")
		require.Contains(t, fresh, "333")
		require.Contains(t, fresh, "222")
		require.NotContains(t, fresh, "nothing since")
		old := shown(end.Add(-17*time.Minute), "/")
		require.NotContains(t, old, "333")
		require.NotContains(t, old, "222")
		require.Contains(t, old, "nothing since "+end.Add(-17*time.Minute).UTC().Format("15:04 UTC"))

		require.NotContains(t, shown(end, "/q/mail/?span=day"), "The charts end before now")
		old = shown(end.Add(-17*time.Minute), "/q/mail/?span=day")
		require.Contains(t, old, "The charts end before now, nothing since")
		require.Contains(t, old, `ready <b>–</b>`, "what was is no figure of now")
	})
}

// Figures that are asked for seldom, since they take long, say of when they are.
func TestFiguresThatAreOldSaySo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shop := newShop(t)
		s := shop.open(everything)
		shop.Faults.Inject(func(op faultdb.Op) (f faultdb.Fault) {
			if strings.Contains(op.Text, "ready") {
				time.Sleep(500 * time.Millisecond) // a database that is slow: they are asked for again after ten seconds
			}
			return f
		})
		defer shop.Faults.Inject(nil)
		require.NotContains(t, s.see("/"), "figures of")
		require.Eventually(t, func() bool {
			return strings.Contains(s.see("/"), "figures of") && strings.Contains(s.see("/q/mail/"), "These figures are of")
		}, patience, tick)
	})
}
