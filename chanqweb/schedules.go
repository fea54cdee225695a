package chanqweb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqadmin"
	"github.com/chanq/chanq/chanqcron"
)

// schedules shows the schedules of all queues. Without their table there are none.
func (h *Handler) schedules(v *visit) (*answer, error) {
	_, list, err := h.openSchedules(v)
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	data := schedulesData{}
	data.List, data.More = upTo(list, schedulesShown)
	return &answer{view: &view{Page: "schedules", Name: "Schedules", Data: data}}, nil
}

// openSchedules returns the schedules and their list, with a place among the readers, which ends with the visit.
func (h *Handler) openSchedules(v *visit) (s *chanqcron.Schedules, list []chanqcron.Entry, err error) {
	if v.give, err = take(v.ctx, h.store.places); err != nil {
		return nil, nil, err
	}
	if s, err = chanqcron.Open(v.ctx, h.store.db, h.store.config); err == nil {
		list, err = s.List(v.ctx)
	}
	return s, list, err
}

// schedulesData is the data of the page of schedules.
type schedulesData struct {
	List []chanqcron.Entry
	More int // that are not shown
}

const schedulesShown = 500

// scheduleAction is a kind of change of a schedule.
type scheduleAction struct {
	verb   string
	ask    string // the question: %s is the schedule and its queue; "": there is none
	reason bool
	run    func(context.Context, *chanqcron.Schedules, chanqcron.Entry, chanqcron.Pause) (said string, err error)
}

var scheduleActions = map[string]scheduleAction{
	"pause": {
		verb: "Pause", ask: "Pause %s? It sends no message until you resume it.", reason: true,
		run: func(ctx context.Context, s *chanqcron.Schedules, e chanqcron.Entry, by chanqcron.Pause) (string, error) {
			return "is paused.", s.Pause(ctx, e.Name, by.By, by.Reason)
		},
	},
	"resume": {
		run: func(ctx context.Context, s *chanqcron.Schedules, e chanqcron.Entry, _ chanqcron.Pause) (string, error) {
			if _, err := time.LoadLocation(e.Zone); err != nil {
				return "is still paused: the program of the web UI does not know its time zone. Import time/tzdata there, or run chanq schedule resume.", nil
			}
			return "is resumed. The ticks of the pause are not sent.", s.Resume(ctx, e.Name)
		},
	},
	"run": {
		run: func(ctx context.Context, s *chanqcron.Schedules, e chanqcron.Entry, _ chanqcron.Pause) (string, error) {
			sent, err := s.Send(ctx, e.Name)
			if sent.Duplicate {
				return "did not send a message: the previous one, " + sent.ID.String() + ", is still in the queue.", err
			}
			return "has sent message " + sent.ID.String() + ".", err
		},
	},
	"remove": {
		verb: "Remove", ask: "Remove %s? Its ticks end. A program that still ensures it stores it again when it starts.",
		run: func(ctx context.Context, s *chanqcron.Schedules, e chanqcron.Entry, _ chanqcron.Pause) (string, error) {
			return "is removed.", s.Remove(ctx, e.Name)
		},
	},
}

var errScheduleUnknown = &refusal{503, "The database did not confirm the change in time: the outcome is unknown. Look at the schedule before you repeat it."}

func (h *Handler) changeSchedule(v *visit) (*answer, error) {
	name, do, reason := v.PostForm.Get("name"), v.PostForm.Get("do"), strings.TrimSpace(v.PostForm.Get("reason"))
	if err := h.permit(v, "schedule", name); err != nil {
		return nil, err
	}
	d, known := scheduleActions[do]
	if !known || len(reason) > mostReason {
		return nil, errForm
	}
	s, list, err := h.openSchedules(v)
	if err != nil && !errors.Is(err, chanq.ErrNoSchema) {
		return nil, err
	}
	at := slices.IndexFunc(list, func(e chanqcron.Entry) bool { return e.Name == name })
	gone := fmt.Sprintf("There is no schedule %s: nothing was changed. It may have been removed.", brief(name, 100))
	if at < 0 {
		return h.saySchedule(v, gone), nil
	}
	e := list[at]
	shown := fmt.Sprintf("schedule %s of queue %s", brief(name, 100), e.Queue)
	sure := v.PostForm.Get("sure") == "yes"
	if d.ask != "" && (!sure || d.reason && reason == "") {
		query := url.Values{"ask": {fmt.Sprintf(d.ask, shown)}, "yes": {d.verb + " " + brief(name, 40)}, "do": {do}, "name": {name}}
		if d.reason {
			query.Set("why", askReason(sure))
		}
		return &answer{goTo: "schedules?" + h.sealed(v, query).Encode()}, nil
	}
	ctx, cancel := v.steady()
	defer cancel()
	log := h.cfg.Log.With("schedule", name, "do", do, "user", v.rights.User, "from", v.RemoteAddr, "reason", reason)
	log.Info("chanqweb: a change begins")
	said, note := "", ""
	by := chanqadmin.Change{Actor: v.actor(), Reason: reason, Unlogged: func(err error) {
		note = unlogged
		log.Error("chanqweb: a change was made, but not logged", "error", err)
	}}
	err = chanqadmin.LogChange(ctx, h.store.db, e.Queue, h.store.config, by, do+" schedule", e.Name, func() (n int, err error) {
		said, err = d.run(ctx, s, e, chanqcron.Pause{By: by.Actor, Reason: reason})
		return 0, err
	})
	var op *chanq.OpError
	switch {
	case errors.Is(err, chanqcron.ErrNoSchedule):
		return h.saySchedule(v, gone), nil
	case err == nil:
		log.Info("chanqweb: a change was made", "result", said)
		return h.saySchedule(v, "S"+shown[1:]+" "+said+note), nil
	}
	log.Error("chanqweb: a change failed", "error", err)
	if errors.As(err, &op) && op.Unknown || ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errScheduleUnknown, err)
	}
	return nil, err
}

// saySchedule returns the answer with the result of a change of a schedule.
func (h *Handler) saySchedule(v *visit, text string) *answer {
	return &answer{goTo: "schedules?" + h.sealed(v, url.Values{"said": {text}}).Encode()}
}
