package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/chanq/chanq"
	"github.com/chanq/chanq/embedded"
	"github.com/chanq/chanq/sqlbatch"
)

// connection is an open database.
type connection struct {
	*sql.DB
	dialect sqlbatch.Dialect
	name    string // for people: without password
}

// creation says whether a SQLite file that does not exist is made.
type creation int

const (
	mustExist creation = iota
	mayCreate
)

// target is what the flags name, checked and not connected to.
type target struct {
	file   string // SQLite
	server *msdsn.Config
}

// target reads --db, --dsn and, without them, CHANQ_DSN. A zero target means
// that none was given.
func (a *app) target(environment string) (target, error) {
	dsn, from := a.dsn, "--dsn"
	switch {
	case a.db != "" && a.dsn != "":
		return target{}, usage("--db and --dsn name two databases: give one")
	case a.db != "":
		return target{file: a.db}, nil
	case dsn == "":
		dsn, from = environment, "CHANQ_DSN"
	}
	if dsn == "" {
		return target{}, nil
	}
	server, err := a.parseDSN(from, dsn)
	return target{server: server}, err
}

// parseDSN never repeats the DSN: a password with an unescaped character may be
// anywhere in it.
func (a *app) parseDSN(from, dsn string) (*msdsn.Config, error) {
	const hint = "must be sqlserver://user:password@host:port?database=name, with special characters of the password percent-encoded"
	if !strings.HasPrefix(dsn, "sqlserver://") {
		return nil, usage("%s %s", from, hint)
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return nil, usage("%s cannot be read: %s", from, hint)
	}
	config, err := msdsn.Parse(dsn)
	a.hide(config.Password)
	a.hide(u.Query().Get("password"))
	if password, given := u.User.Password(); given {
		a.hide(password)
	}
	if err != nil {
		a.hideValues(u)
		return nil, usage("%s: %w", from, err)
	}
	return &config, nil
}

// hideValues hides all that the query of a URL says: the driver repeats a value
// that it cannot read, and a part of a password with an unescaped character may
// stand there.
func (a *app) hideValues(u *url.URL) {
	const tooShort = 4 // to be a secret: blacking it out would spoil the words of the error
	for _, pair := range strings.Split(u.RawQuery, "&") {
		_, raw, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(raw)
		if err != nil {
			value = raw
		}
		if len(value) >= tooShort {
			a.hide(raw)
			a.hide(value)
		}
	}
}

// hide makes redact know a password, in each form that it may have in a URL.
func (a *app) hide(secret string) {
	if secret == "" {
		return
	}
	query := url.QueryEscape(secret)
	a.secrets = append(a.secrets, secret, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(secret))
}

// redact blacks out passwords.
func (a *app) redact(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// connect opens the database that the flags or CHANQ_DSN name.
func (a *app) connect(ctx context.Context, c creation) (*connection, error) {
	t, err := a.target(os.Getenv("CHANQ_DSN"))
	if err != nil {
		return nil, err
	}
	return a.open(ctx, t, c)
}

func (a *app) open(ctx context.Context, t target, c creation) (*connection, error) {
	switch {
	case t.server != nil:
		config := *t.server
		if config.AppName == "" || config.AppName == "go-mssqldb" {
			config.AppName = "chanq"
		}
		name := "SQL Server " + config.Host
		if config.Database != "" {
			name += ", database " + config.Database
		}
		db := sql.OpenDB(mssql.NewConnectorConfig(config))
		if err := db.PingContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", name, err), db.Close())
		}
		return &connection{db, sqlbatch.SQLServer, name}, nil
	case t.file != "":
		if c == mustExist {
			if _, err := os.Stat(t.file); errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("--db: %s does not exist; chanq migrate makes it", t.file)
			}
		}
		db, err := embedded.Open(t.file)
		if err != nil {
			return nil, fmt.Errorf("--db: %w", err)
		}
		return &connection{db, sqlbatch.SQLite, t.file}, nil
	default:
		return nil, usage("which database? Give --db FILE or --dsn URL, or set CHANQ_DSN")
	}
}

// withQueue opens a queue, whose bodies are left as they are, for one call.
func (a *app) withQueue(ctx context.Context, name string, f func(*chanq.Queue[[]byte]) error) error {
	c, err := a.connect(ctx, mustExist)
	if err != nil {
		return err
	}
	defer c.Close()
	q, err := chanq.Open[[]byte](ctx, c.DB, name, a.queueConfig(c))
	if err != nil {
		return err
	}
	return f(q)
}
