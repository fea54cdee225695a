package record

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
)

func TestTheCheckerIdentifiesPoisonMessages(t *testing.T) {
	id := chanq.ID{1}
	for name, c := range map[string]struct {
		events []Event // of one message
		dead   []chanqadmin.Entry
		want   string // "" for no fault
	}{
		"refused":                    {[]Event{{Kind: Dropped, Name: "a refused"}}, nil, ""},
		"refused, and stored":        {[]Event{{Kind: Stored, Name: "a refused"}}, nil, "but it was stored"},
		"refused, and delivered":     {[]Event{{Kind: Got, Name: "a refused", ID: id, Attempt: 1}}, nil, "but it was stored"},
		"innocent, and refused":      {[]Event{{Kind: Dropped, Name: "a", Error: "no room"}}, nil, "its send failed: no room"},
		"unreadable":                 {[]Event{{Kind: Stored, Name: "a unreadable", ID: id}}, []chanqadmin.Entry{{ID: id, Type: Unreadable}}, ""},
		"unreadable, and lost":       {[]Event{{Kind: Stored, Name: "a unreadable", ID: id}}, nil, "LOST: a unreadable"},
		"unreadable, and delivered":  {[]Event{{Kind: Got, Name: "a unreadable", ID: id, Attempt: 1}}, nil, "cannot be decoded"},
		"deadly, and lost":           {[]Event{{Kind: Stored, Name: "a deadly", ID: id}}, nil, "LOST: a deadly"},
		"undeletable, not acked":     {[]Event{{Kind: Got, Name: "a undeletable", Attempt: 1}, {Kind: Settling, At: 1, Name: "a undeletable", Attempt: 1, How: Ack}, {Kind: Failed, Name: "a undeletable", Attempt: 1}}, nil, ""},
		"innocent, and dead":         {[]Event{{Kind: Stored, Name: "a", ID: id}}, []chanqadmin.Entry{{ID: id}}, "innocent"},
		"innocent, dead as intended": {[]Event{{Kind: Got, Name: "a", ID: id, Attempt: 1}, {Kind: Settling, Name: "a", Attempt: 1, How: DeadLetter}, {Kind: Confirmed, Name: "a", Attempt: 1}}, []chanqadmin.Entry{{ID: id}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHistory(10 * time.Second)
			h.Add(0, Event{Kind: Intended, Name: c.events[0].Name, ID: c.events[0].ID})
			for _, e := range c.events {
				h.Add(0, e)
			}
			found := h.CheckDead(c.dead)
			for _, fault := range h.Judge().Faults {
				found = append(found, errors.New(fault))
			}
			err := errors.Join(found...)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestAnInterruptionIsMeasuredUntilTheEndOfTheSends(t *testing.T) {
	h := historyOf("0 0:intended 0:stored 1:got1nack 1:confirmed1 0:stored 20 1:got2 1:confirmed2 0:stored")
	sends, settles := h.Still(15 * second)
	require.Equal(t, []time.Duration{11*time.Second - 1, 12*time.Second - 1}, []time.Duration{sends, settles})
}
