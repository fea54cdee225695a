package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/chanq/chanq"
)

// target is the database that the flags name, checked and not connected to. One field is set, or none if no database was
// named.
type target struct {
	file      string // SQLite
	sqlServer *msdsn.Config
	postgres  *pgx.ConnConfig
}

// dialect is "" without a database.
func (t target) dialect() chanq.Dialect {
	switch {
	case t.sqlServer != nil:
		return chanq.DialectSQLServer
	case t.postgres != nil:
		return chanq.DialectPostgres
	case t.file != "":
		return chanq.DialectSQLite
	}
	return ""
}

// target reads --db, --dsn and, without them, CHANQ_DSN.
func (a *app) target() (target, error) {
	dsn, from := a.dsn, "--dsn"
	switch {
	case a.db != "" && a.dsn != "":
		return target{}, usage("--db and --dsn name two databases: give one")
	case a.db != "":
		return target{file: a.db}, nil
	case dsn == "":
		dsn, from = os.Getenv("CHANQ_DSN"), "CHANQ_DSN"
	}
	if dsn == "" {
		return target{}, nil
	}
	return a.targetOf(from, dsn)
}

// targetOf parses a DSN, or reads it from a file or variable. from is its source, for errors.
func (a *app) targetOf(from, dsn string) (target, error) {
	dsn, err := elsewhere(from, "a DSN", dsn)
	if err != nil {
		return target{}, err
	}
	scheme, _, isURL := strings.Cut(dsn, "://")
	switch keywords := keywordsOf(dsn); {
	case isURL && scheme == "sqlserver":
		u, err := a.parseURL(from, dsn, sqlServerURL)
		if err == nil && u.Host == "" {
			err = usage("%s cannot be read: %s", from, sqlServerURL)
		}
		if err != nil {
			return target{}, err
		}
		return a.parseSQLServer(from, dsn, sqlServerURL)
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		if _, err := a.parseURL(from, dsn, postgresURL); err != nil {
			return target{}, err
		}
		return a.parsePostgres(from, dsn, postgresURL)
	case keywords == ofSQLServer:
		return a.parseSQLServer(from, dsn, sqlServerKeywords)
	case keywords == ofPostgreSQL:
		return a.parsePostgres(from, dsn, postgresKeywords)
	default:
		return target{}, usage("%s must be sqlserver://user:password@host:port?database=name or postgres://user:password@host:port/database, %s; or start with server= or host=, as their drivers' keywords do; or be @FILE or env:NAME", from, escaping)
	}
}

// keywords is the syntax of a DSN that is not a URL.
type keywords int

const (
	none         keywords = iota
	ofSQLServer           // server=host;user id=name; or odbc:server=host;…
	ofPostgreSQL          // host=name user=name
)

// keywordsOf distinguishes the two by the first word, which cannot be part of a password. A word that both drivers know
// counts as PostgreSQL's if no semicolon follows.
func keywordsOf(dsn string) keywords {
	word, rest, _ := strings.Cut(dsn, "=")
	switch word = strings.ToLower(strings.TrimSpace(word)); word {
	case "server", "data source", "addr", "address", "network address", "user id", "uid", "initial catalog":
		return ofSQLServer
	case "host", "hostaddr", "dbname", "service", "sslmode":
		return ofPostgreSQL
	case "user", "password", "port", "database":
		if !strings.Contains(rest, ";") {
			return ofPostgreSQL
		}
	}
	if strings.HasPrefix(word, "odbc:") {
		return ofSQLServer
	}
	return none
}

const (
	inFile        = "@"
	inEnvironment = "env:"
	maxDSN        = 64 << 10 // bytes of a file, which may be the wrong file
)

// elsewhere returns the DSN that a value refers to: for @FILE the content of the file, for env:NAME the environment
// variable, otherwise the value itself. A password therefore need not be on the command line, which all processes of the
// machine can read. Errors do not repeat the value, because it may be a misplaced DSN.
func elsewhere(from, what, value string) (string, error) {
	if file, ok := strings.CutPrefix(value, inFile); ok {
		text, err := readStart(file)
		text = bytes.TrimSpace(text)
		switch {
		case err != nil:
			return "", usage("%s: the file after @ cannot be read: %w", from, err)
		case len(text) == 0:
			return "", usage("%s: the file after @ is empty: it must contain %s and nothing else", from, what)
		case len(text) > maxDSN || bytes.ContainsAny(text, "\r\n"):
			return "", usage("%s: the file after @ has more than one line: it must contain %s and nothing else", from, what)
		}
		return string(text), nil
	}
	if name, ok := strings.CutPrefix(value, inEnvironment); ok {
		text := strings.TrimSpace(os.Getenv(name))
		if text == "" {
			return "", usage("%s: the environment variable after env: is not set: export it, or correct the name", from)
		}
		return text, nil
	}
	return value, nil
}

// readStart reads a file, but not much more than the longest DSN. Its errors do not name the file.
func readStart(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err == nil {
		defer f.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(f, 2*maxDSN)); err == nil {
			return text, nil
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return nil, err
}

// Errors about a DSN never repeat it or the error of a driver, which contains parts of it: a password with an unescaped
// character could be in any part. Errors name the form of the DSN. A # is such a character in a URL: the text after it is
// not parsed.
const (
	escaping          = "with special characters of the password percent-encoded"
	sqlServerURL      = "must be sqlserver://user:password@host:port?database=name, " + escaping
	sqlServerKeywords = `must be server=host,port;user id=name;password="word";database=name, with a quote in the password doubled`
	postgresURL       = "must be postgres://user:password@host:port/database, or postgres:///database?host=/directory for a Unix socket, " + escaping
	postgresKeywords  = `must be host=name port=number user=name password='word' dbname=name, with \ before a quote or a \ in the password`
)

func (a *app) parseURL(from, dsn, form string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	if err != nil || strings.Contains(dsn, "#") {
		return nil, usage("%s cannot be read: %s", from, form)
	}
	a.hideIn(u)
	return u, nil
}

func (a *app) parseSQLServer(from, dsn, form string) (target, error) {
	config, err := msdsn.Parse(dsn)
	a.hide(config.Password)
	a.hide(config.ChangePassword)
	if err != nil || form == sqlServerKeywords && spilled(config.Host, config.Instance, config.Database, config.User) {
		return target{}, usage("%s cannot be read by SQL Server's driver, go-mssqldb: %s; check the port and parameters such as encrypt", from, form)
	}
	return target{sqlServer: &config}, nil
}

func (a *app) parsePostgres(from, dsn, form string) (target, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil || form == postgresKeywords && spilledPostgres(config) {
		return target{}, usage("%s cannot be read by PostgreSQL's driver, pgx: %s; check the port and parameters such as sslmode", from, form)
	}
	a.hide(config.Password) // from the environment or a file
	return target{postgres: config}, nil
}

// spilled reports that a value contains other keywords, because they are separated as for another driver. One of them might
// be the password, and errors name hosts, databases and users. A name with such a character can be given in a URL.
func spilled(values ...string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, ";=") })
}

// spilledPostgres is spilled for PostgreSQL's keywords. A keyword that the driver does not know is passed to the server,
// whose error names unknown settings.
func spilledPostgres(config *pgx.ConnConfig) bool {
	values := []string{config.Host, config.Database, config.User}
	for _, f := range config.Fallbacks {
		values = append(values, f.Host)
	}
	for name, v := range config.RuntimeParams {
		if name == "options" {
			v = strings.ReplaceAll(v, "=", "") // a = of the value itself
		}
		if strings.ContainsAny(name, " \t\r\n\v\f,") {
			return true
		}
		values = append(values, name, v)
	}
	return spilled(values...)
}

// hideIn hides the passwords of a URL, also in their escaped form.
func (a *app) hideIn(u *url.URL) {
	if password, given := u.User.Password(); given {
		a.hide(password)
	}
	for _, pair := range strings.Split(u.RawQuery, "&") {
		name, raw, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); err != nil || !strings.HasSuffix(strings.ToLower(name), "password") {
			continue
		}
		a.hide(raw)
		if value, err := url.QueryUnescape(raw); err == nil {
			a.hide(value)
		}
	}
}

// hide adds a password to those that redact removes, in each form that it can have in a URL.
func (a *app) hide(secret string) {
	if secret == "" {
		return
	}
	query := url.QueryEscape(secret)
	a.secrets = append(a.secrets, secret, query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(secret))
}

// redact replaces passwords.
func (a *app) redact(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}
