package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

// underRecord are the parts during which the server's deadlocks are recorded.
var underRecord = []string{"suite", "programs", "load"}

// dispatched is the time after which an event is in the ring buffer: a second more than MAX_DISPATCH_LATENCY.
const dispatched = 2 * time.Second

func (s *server) recorder() string { return s.prefix + "_deadlocks" }

// watchDeadlocks starts a session of Extended Events, which keeps the graph of each deadlock.
func (h *hour) watchDeadlocks(ctx context.Context) {
	name := h.recorder()
	_, err := h.admin.ExecContext(ctx, h.dropDeadlocks())
	if err == nil {
		h.recording = true
		_, err = h.admin.ExecContext(ctx, "CREATE EVENT SESSION ["+name+"] ON SERVER ADD EVENT sqlserver.xml_deadlock_report ADD TARGET package0.ring_buffer (SET max_memory = 16384) WITH (MAX_DISPATCH_LATENCY = 1 SECONDS)")
		if refused := (mssql.Error{}); errors.As(err, &refused) {
			h.recording = false
		}
	}
	if err == nil {
		_, err = h.admin.ExecContext(ctx, "ALTER EVENT SESSION ["+name+"] ON SERVER STATE = START")
	}
	if err == nil {
		return
	}
	if h.recording {
		_ = h.stopDeadlocks(ctx) // close repeats it
	}
	h.report.of("deadlocks").skip("deadlocks during "+h.report.part, fmt.Errorf("no session of events: %w", err))
}

// readDeadlocks adds the deadlocks since watchDeadlocks to the report, and ends the session.
func (h *hour) readDeadlocks(ctx context.Context) {
	if ctx.Err() != nil || !h.recording {
		return // close ends the session
	}
	err := errors.Join(h.reportDeadlocks(ctx), h.stopDeadlocks(ctx))
	if err != nil {
		h.report.of("deadlocks").skip("deadlocks during "+h.report.part, err)
	}
}

func (h *hour) reportDeadlocks(ctx context.Context) error {
	if !h.quick {
		select {
		case <-time.After(dispatched):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var text string
	err := h.admin.QueryRowContext(ctx, `SELECT CONVERT(nvarchar(max), t.target_data) FROM sys.dm_xe_sessions AS s INNER JOIN sys.dm_xe_session_targets AS t ON t.event_session_address = s.address WHERE s.name = @p1 AND t.target_name = N'ring_buffer'`, h.recorder()).Scan(&text)
	if err != nil {
		return err
	}
	found, err := readGraphs(text)
	if err != nil {
		return err
	}
	own := 0
	for i, d := range found {
		if d.own() {
			own++
		}
		h.report.of("deadlocks").attach(fmt.Sprintf("Deadlock %d during %s", i+1, h.report.part), "Who waited for whom, and the graph of the server.", d.summary()+"\n"+d.graph)
	}
	r := h.report.of("deadlocks")
	r.compare("deadlocks of chanq's own statements, during "+h.report.part, "0", fmt.Sprint(own))
	r.note("deadlocks with a transaction of a test or a caller, during "+h.report.part, fmt.Sprint(len(found)-own))
	return nil
}

// stopDeadlocks ends the session of Extended Events, if there is one. It does not end with ctx.
func (s *server) stopDeadlocks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answersFor)
	defer cancel()
	_, err := s.admin.ExecContext(ctx, s.dropDeadlocks())
	if err == nil {
		s.recording = false
	}
	return err
}

func (s *server) dropDeadlocks() string {
	return "IF EXISTS (SELECT 1 FROM sys.server_event_sessions WHERE name = N'" + s.recorder() + "') DROP EVENT SESSION [" + s.recorder() + "] ON SERVER"
}

// deadlock is a graph of the event xml_deadlock_report.
type deadlock struct {
	Victims []struct {
		ID string `xml:"id,attr"`
	} `xml:"victim-list>victimProcess"`
	Processes []struct {
		ID       string   `xml:"id,attr"`
		Waits    string   `xml:"waitresource,attr"`
		Mode     string   `xml:"lockMode,attr"`
		Level    string   `xml:"isolationlevel,attr"`
		Program  string   `xml:"clientapp,attr"`
		Frames   []string `xml:"executionStack>frame"`
		InputBuf string   `xml:"inputbuf"`
	} `xml:"process-list>process"`
	Resources struct {
		Locks []lockResource `xml:",any"`
	} `xml:"resource-list"`
	graph string
}

// lockResource is a lock in a cycle.
type lockResource struct {
	XMLName xml.Name
	Object  string       `xml:"objectname,attr"`
	Index   string       `xml:"indexname,attr"`
	Owners  []lockHolder `xml:"owner-list>owner"`
	Waiters []lockHolder `xml:"waiter-list>waiter"`
}

type lockHolder struct {
	ID   string `xml:"id,attr"`
	Mode string `xml:"mode,attr"`
}

// readGraphs reads the data of a ring buffer.
func readGraphs(text string) ([]deadlock, error) {
	var target struct {
		Events []struct {
			Name string `xml:"name,attr"`
			Data []struct {
				Name  string `xml:"name,attr"`
				Value struct {
					Graph string `xml:",innerxml"`
				} `xml:"value"`
			} `xml:"data"`
		} `xml:"event"`
	}
	if err := xml.Unmarshal([]byte(text), &target); err != nil {
		return nil, fmt.Errorf("the ring buffer cannot be read (it is cut when it is large): %w", err)
	}
	var all []deadlock
	for _, e := range target.Events {
		for _, data := range e.Data {
			if e.Name != "xml_deadlock_report" || data.Name != "xml_report" {
				continue
			}
			d := deadlock{graph: strings.TrimSpace(data.Value.Graph)}
			if err := xml.Unmarshal([]byte(d.graph), &d); err != nil {
				return nil, fmt.Errorf("a graph cannot be read: %w", err)
			}
			if len(d.Processes) == 0 {
				return nil, errors.New("a graph without processes")
			}
			all = append(all, d)
		}
	}
	return all, nil
}

// own reports whether all processes ran statements of chanq's own transactions: each of these begins with the same settings.
func (d *deadlock) own() bool {
	for _, p := range d.Processes {
		if !strings.Contains(p.InputBuf, "SET NOCOUNT, XACT_ABORT ON") {
			return false
		}
	}
	return true
}

// summary says who waited for what.
func (d *deadlock) summary() string {
	var b strings.Builder
	name := map[string]string{}
	for i, p := range d.Processes {
		name[p.ID] = fmt.Sprintf("process %d", i+1)
		victim := ""
		for _, v := range d.Victims {
			if v.ID == p.ID {
				victim = ", the victim"
			}
		}
		text := p.InputBuf
		if len(p.Frames) > 0 && strings.TrimSpace(p.Frames[0]) != "" && strings.TrimSpace(p.Frames[0]) != "unknown" {
			text = p.Frames[0]
		}
		fmt.Fprintf(&b, "%s%s, %s, waits for %s of %s: %s\n", name[p.ID], victim, p.Level, p.Mode, p.Waits, brief(text))
	}
	for _, r := range d.Resources.Locks {
		fmt.Fprintf(&b, "%s %s %s:", r.XMLName.Local, r.Object, r.Index)
		for _, o := range r.Owners {
			fmt.Fprintf(&b, " %s has %s;", name[o.ID], o.Mode)
		}
		for _, w := range r.Waiters {
			fmt.Fprintf(&b, " %s wants %s;", name[w.ID], w.Mode)
		}
		b.WriteString("\n")
	}
	return b.String()
}
