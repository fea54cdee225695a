package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqweb"
)

const (
	killFor  = time.Minute // processes are killed
	mostURLs = 60          // of the web UI
)

// programs is what suite does not cover on a server: the documented rights, the command, the web UI and killed processes.
func programs(ctx context.Context, h *hour) error {
	d := h.databases[0]
	if err := d.migrate(ctx); err != nil {
		return err
	}
	for _, p := range []struct {
		what string
		run  func(context.Context, *database) error
	}{
		{"a producer and a consumer with the rights of docs/rights/sqlserver.sql send, receive and ack", h.rights},
		{"the command migrates, sends, looks, receives and examines", h.useCommand},
		{"every page of the web UI", h.browse},
	} {
		h.report.say("  %s", p.what)
		if err := p.run(ctx, d); err != nil {
			h.report.failed(p.what, "no error", err)
		} else {
			h.report.compare(p.what, "no error", "no error")
		}
	}
	h.onlyQuick()
	if h.quick {
		return nil
	}
	h.report.say("  processes are killed for %v", killFor)
	return h.kill(ctx, d)
}

// rights runs the documented file, and uses the queue as two logins that have a role of it each.
func (h *hour) rights(ctx context.Context, d *database) error {
	text, err := os.ReadFile(filepath.Join(h.root, "docs", "rights", "sqlserver.sql"))
	if err != nil {
		return err
	}
	plain, _, _ := strings.Cut(string(text), "-- Part 3")
	if _, err := d.db.ExecContext(ctx, plain); err != nil {
		return fmt.Errorf("docs/rights/sqlserver.sql: %w", err)
	}
	if _, err := d.db.ExecContext(ctx, "DELETE FROM dbo.chanq_"+queue); err != nil {
		return err
	}
	as := func(role string, use func(*chanq.Queue[[]byte]) error) error {
		login, password, err := h.login(ctx, d, role)
		if err != nil {
			return err
		}
		u, err := url.Parse(d.dsn)
		if err != nil {
			return err
		}
		u.User = url.UserPassword(login, password)
		db, err := open(u.String())
		if err != nil {
			return err
		}
		defer db.Close()
		q, err := chanq.Open[[]byte](ctx, db, queue, chanq.Config{Dialect: chanq.DialectSQLServer})
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		if err := use(q); err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		return nil
	}
	err = as("producer", func(q *chanq.Queue[[]byte]) error {
		_, err := q.Send(ctx, chanq.Msg([]byte("sent")))
		return err
	})
	if err != nil {
		return err
	}
	return as("consumer", func(q *chanq.Queue[[]byte]) error { return receive(ctx, q, 1) })
}

// login creates a login with one of the documented roles. The end of the run drops it, and that of the database its user.
func (h *hour) login(ctx context.Context, d *database, role string) (name, password string, err error) {
	name, password = h.prefix+"_"+role, "Aa1-"+rand.Text()
	if _, err := d.db.ExecContext(ctx, "CREATE LOGIN ["+name+"] WITH PASSWORD = '"+password+"'"); err != nil && ctx.Err() == nil {
		return "", "", unseen{err}
	}
	h.logins = append(h.logins, name)
	_, err = d.db.ExecContext(ctx, "CREATE USER ["+name+"] FOR LOGIN ["+name+"]; ALTER ROLE chanq_"+role+" ADD MEMBER ["+name+"];")
	return name, password, err
}

// receive acks all messages of a queue, which must be n.
func receive(ctx context.Context, q *chanq.Queue[[]byte], n int) error {
	consumer, err := q.Consume(ctx, chanq.ConsumerConfig{StopWhenIdle: true})
	if err != nil {
		return err
	}
	got := 0
	for lease := range consumer.C() {
		got++
		err = errors.Join(err, lease.Ack())
	}
	if err = errors.Join(err, consumer.Shutdown(ctx)); err == nil && got != n {
		err = fmt.Errorf("%d messages were received, not %d", got, n)
	}
	return err
}

// useCommand runs cmd/chanq on a queue of its own.
func (h *hour) useCommand(ctx context.Context, d *database) error {
	folder, err := os.MkdirTemp("", "chanq-firsthour-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program := filepath.Join(folder, "chanq.exe")
	if err := h.child(ctx, nil, func(io.Reader) error { return nil }, "go", "build", "-o", program, "./cmd/chanq"); err != nil {
		return fmt.Errorf("go build ./cmd/chanq: %w", err)
	}
	for _, c := range []struct {
		args   []string
		prints string
	}{
		{[]string{"migrate", "mail"}, ``},
		{[]string{"send", "mail", "one", "two", "three"}, `^\S{36}\n\S{36}\n\S{36}\n$`},
		{[]string{"peek", "mail"}, `(?s)one.*two.*three|[0-9a-f-]{36}`},
		{[]string{"receive", "mail"}, `^one\n$`},
		{[]string{"stats"}, `mail`},
		{[]string{"top", "-n", "1"}, `mail`},
		{[]string{"purge", "--yes", "--state", "ready", "mail"}, `^2 messages purged\n$`},
		{[]string{"doctor", "-o", "json"}, `"status"`},
		{[]string{"drop", "mail"}, `^queue mail dropped\n$`},
	} {
		var out []byte
		err := h.child(ctx, []string{"CHANQ_DSN=" + d.dsn}, func(r io.Reader) (err error) { out, err = io.ReadAll(r); return err }, program, c.args...)
		var exit *exec.ExitError
		if errors.As(err, &exit) && c.args[0] == "doctor" && exit.ExitCode() == 1 {
			h.report.attach("chanq doctor", "What the command found.", string(out)) // it has found something, which is what it is for
			err = nil
		}
		if err != nil {
			return fmt.Errorf("chanq %s: %w: %s", strings.Join(c.args, " "), err, brief(string(out)))
		}
		if !regexp.MustCompile(c.prints).Match(out) {
			return fmt.Errorf("chanq %s printed %s", strings.Join(c.args, " "), brief(string(out)))
		}
	}
	return nil
}

var link = regexp.MustCompile(`href="([^"#]+)"`)

// browse visits every page of the web UI that is linked from its first one, of a queue that has messages in each state.
func (h *hour) browse(ctx context.Context, d *database) error {
	if _, err := d.prepare(ctx); err != nil {
		return err
	}
	ui, err := chanqweb.New(d.db, chanqweb.Config{Dialect: chanq.DialectSQLServer})
	if err != nil {
		return err
	}
	start, err := url.Parse("http://127.0.0.1/")
	if err != nil {
		return err
	}
	todo, known := []*url.URL{start}, map[string]bool{start.String(): true}
	for visited := 0; len(todo) > 0 && visited < mostURLs; visited++ {
		at := todo[0]
		todo = todo[1:]
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		w := httptest.NewRecorder()
		ui.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil))
		cancel()
		if w.Code != http.StatusOK && w.Code/100 != 3 {
			return fmt.Errorf("%s: status %d: %s", at.Path, w.Code, brief(w.Body.String()))
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(w.Body.String(), -1) {
			to, err := at.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err == nil && to.Host == start.Host && !known[to.String()] {
				known[to.String()] = true
				todo = append(todo, to)
			}
		}
	}
	if len(known) < 5 {
		return fmt.Errorf("only %d pages are linked", len(known))
	}
	return nil
}

// kill runs a storm of prove/chaos on the server.
func (h *hour) kill(ctx context.Context, d *database) error {
	var out []byte
	err := h.child(ctx, nil, func(r io.Reader) (err error) { out, err = io.ReadAll(r); return err },
		"go", "run", "./prove/chaos", "-at", "sqlserver="+d.dsn, "-for", killFor.String(), "-rate", "400")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	const what = "processes are killed, connections freeze, rows are locked"
	if err != nil {
		h.report.wrong(what, "every guarantee holds", brief(err.Error()))
	} else {
		h.report.compare(what, "every guarantee holds", "every guarantee holds")
	}
	h.report.attach("go run ./prove/chaos", "What the storm printed.", string(out))
	return nil
}
