package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/chanqfindings"
	"github.com/chanq/chanq/chanqprom"
	"github.com/chanq/chanq/chanqweb"
)

// ui are the flags of chanq ui.
type ui struct {
	listen, title          string
	password, admin, users string
	cert, key              string
	change, bodies         bool
	limits                 chanqfindings.Limits

	login func(name, password string) (chanqweb.Rights, bool) // set by check; nil: this machine only, without a password
}

func (a *app) uiCommand() *cobra.Command {
	var u ui
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the web UI",
		Long: `Serves the web UI: queues, messages, failures by cause, and consumers. By default it
changes nothing, and hides bodies and values of headers. With --allow-changes your
browser can redrive, purge, cancel and pause. --stuck and --late say when a queue is in trouble.

It also serves /metrics for Prometheus, with the same passwords, and /livez and /readyz for
probes, without one.

By default it listens on this machine only, without a password. On other addresses it requires
passwords, as @FILE or env:NAME, since all processes of a machine can read its command lines. A
line of --users is NAME:HASH, or NAME:HASH:change, as htpasswd -nB NAME prints it. Without --cert
and --key passwords are sent in plain text: then put a proxy with TLS in front of it.`,
		Example: `  chanq ui --db jobs.db
  chanq ui --dsn @/run/secrets/shop-dsn --allow-changes
  chanq ui --dsn env:SHOP --listen :8443 --password @/run/secrets/ui --cert ui.crt --key ui.key
  chanq ui --dsn env:SHOP --listen :8443 --users /etc/chanq/users --cert ui.crt --key ui.key`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := u.check(); err != nil {
				return err
			}
			return a.serve(cmd.Context(), u)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&u.listen, "listen", "127.0.0.1:8686", "`address` to listen on")
	flags.StringVar(&u.title, "title", "", "`name` of the database on the pages (default its server and name)")
	flags.StringVar(&u.password, "password", "", "`password` to view: @FILE or env:NAME")
	flags.StringVar(&u.admin, "admin-password", "", "`password` to view and change: @FILE or env:NAME")
	flags.StringVar(&u.users, "users", "", "`file` with users, and which of them may change")
	flags.BoolVar(&u.change, "allow-changes", false, "allow the web UI to redrive, purge, cancel, pause and resume")
	flags.BoolVar(&u.bodies, "show-bodies", false, "show bodies and values of headers")
	flags.StringVar(&u.cert, "cert", "", "`file` with the certificate, for TLS")
	flags.StringVar(&u.key, "key", "", "`file` with its key")
	limitFlags(cmd, &u.limits)
	return cmd
}

// idleConns is how many connections stay open between two reads of the figures.
const idleConns = 8

// leastPassword is in bytes. Only the length of a password protects it from being guessed.
const leastPassword = 12

func (u *ui) check() error {
	if err := u.limits.Check(); err != nil {
		return usage("--stuck, --late: %w", err)
	}
	host, _, err := net.SplitHostPort(u.listen)
	if err != nil {
		return usage("--listen is %q: must be HOST:PORT, such as 127.0.0.1:8686", u.listen)
	}
	if (u.cert == "") != (u.key == "") {
		return usage("--cert and --key: give both or none")
	}
	given := u.password != "" || u.admin != ""
	if err := errors.Join(readPassword("--password", &u.password), readPassword("--admin-password", &u.admin)); err != nil {
		return err
	}
	ip := net.ParseIP(host)
	switch {
	case u.change && (u.admin != "" || u.users != ""):
		return usage("--allow-changes lets everyone change, and --admin-password and --users say who may: give one of them")
	case given && u.users != "":
		return usage("--users excludes --password and --admin-password")
	case u.admin != "" && u.admin == u.password:
		return usage("--admin-password is the same as --password")
	case u.users != "":
		found, err := readUsers(u.users)
		if err != nil {
			return err
		}
		u.login = found.check
	case given:
		look, admin := chanqweb.Password(u.password, chanqweb.Rights{Change: u.change}), chanqweb.Password(u.admin, chanqweb.Rights{Change: true})
		u.login = func(name, password string) (chanqweb.Rights, bool) {
			may, ok := look(name, password)
			if more, is := admin(name, password); is { // both are compared, whichever is right
				return more, true
			}
			return may, ok
		}
	case host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return usage("--listen %s accepts connections from other machines: give --password or --users", u.listen)
	}
	return nil
}

// readPassword replaces the value of a flag by the password that it names.
func readPassword(flag string, value *string) (err error) {
	given := *value
	*value = "" // no other line of output contains it
	switch {
	case given == "":
		return nil
	case !strings.HasPrefix(given, "@") && !strings.HasPrefix(given, "env:"):
		return usage("%s must be @FILE or env:NAME: other users of the machine can read command lines", flag)
	}
	if *value, err = elsewhere(flag, "the password", given); err == nil && len(*value) < leastPassword {
		err = usage("%s: the password must have at least %d characters", flag, leastPassword)
	}
	return err
}

// serve serves the UI until ctx ends.
func (a *app) serve(ctx context.Context, u ui) error {
	c, err := a.connectPage(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if u.title == "" {
		u.title = c.name
	}
	c.SetMaxIdleConns(idleConns)
	log := slog.New(slog.NewTextHandler(a.err, nil))
	page, err := chanqweb.New(c.DB, chanqweb.Config{
		Schema: a.schema, Title: u.title, Limits: u.limits, Log: log,
		Rights: func(r *http.Request) chanqweb.Rights {
			rights := chanqweb.Login(r)
			rights.Change, rights.Bodies = rights.Change || u.login == nil && u.change, u.bodies
			return rights
		},
	})
	if err != nil {
		return err
	}
	metrics := chanqprom.New(chanqprom.Config{Limits: u.limits, Log: log})
	defer metrics.WatchAll(c.DB, chanq.Config{Schema: a.schema})()
	handler := u.routes(page, metrics.Handler(), log)
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", u.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	scheme := "http"
	if u.cert != "" {
		scheme = "https"
	}
	if _, err := fmt.Fprintf(a.out, "%s://%s\n", scheme, opened(l.Addr())); err != nil {
		return errors.Join(err, l.Close())
	}
	return serveUntil(ctx, u, page, &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.NewTextHandler(a.err, nil), slog.LevelWarn),
	}, l)
}

// opened returns an address that one can open on this machine: one for all addresses of the machine, such as [::], is none.
func opened(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return a.String()
}

// connectPage is connect with PostgreSQL's jit off, unless the DSN sets it: jit compiles statements
// with a high estimate, which takes many times as long as running them. If a pooler rejects the
// setting at the beginning of a session, it connects without it.
func (a *app) connectPage(ctx context.Context) (*connection, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	asked := t.postgres
	if asked == nil || asked.RuntimeParams["jit"] != "" || strings.Contains(asked.RuntimeParams["options"], "jit") {
		return a.open(ctx, t, mustExist)
	}
	t.postgres = asked.Copy()
	t.postgres.RuntimeParams["jit"] = "off"
	c, err := a.open(ctx, t, mustExist)
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "08P01" { // protocol_violation, from PgBouncer
		t.postgres = asked
		return a.open(ctx, t, mustExist)
	}
	return c, err
}

// routes serves the web UI, the metrics and the probes. Probes report that the server responds, which
// is not secret. Everything else requires the password or a local address.
func (u *ui) routes(page, metrics http.Handler, log *slog.Logger) http.Handler {
	guarded, all := http.NewServeMux(), http.NewServeMux()
	guarded.Handle("/", page)
	guarded.Handle("GET /metrics", metrics)
	well := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	all.HandleFunc("GET /livez", well)
	all.HandleFunc("GET /readyz", well)
	if u.login != nil {
		all.Handle("/", chanqweb.WithLogin(guarded, u.login, log))
	} else {
		all.Handle("/", chanqweb.LocalOnly(guarded))
	}
	return all
}

// serveUntil serves until ctx ends, and then lets running requests finish.
func serveUntil(ctx context.Context, u ui, page *chanqweb.Handler, server *http.Server, l net.Listener) error {
	server.RegisterOnShutdown(page.Close)
	ended := make(chan error, 1)
	go func() { // ends with the server
		if u.cert != "" {
			ended <- server.ServeTLS(l, u.cert, u.key)
		} else {
			ended <- server.Serve(l)
		}
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	page.Close() // Shutdown does not wait for it
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
