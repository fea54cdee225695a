package testdb

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/chanq/chanq/mssqltest/memnet"
)

// Server returns the server of an address. A file has none: network is "".
func (e Engine) Server(address string) (network, upstream string, err error) {
	switch e.Dialect.Name() {
	case "postgres":
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return "", "", err
		}
		if strings.HasPrefix(config.Host, "/") {
			return "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port), nil
		}
		return "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
	case "sqlserver":
		config, err := msdsn.Parse(address)
		upstream := net.JoinHostPort(config.Host, strconv.FormatUint(max(config.Port, 1433), 10))
		if memnet.Has(upstream) {
			return memnet.Network, upstream, err
		}
		return "tcp", upstream, err
	}
	return "", "", nil
}

// Through returns the address of the same database through a proxy to its server.
func (e Engine) Through(address string, proxy net.Addr) (string, error) {
	if e.Dialect.Name() == "sqlserver" {
		config, err := msdsn.Parse(address)
		if err != nil {
			return "", err
		}
		u := config.URL()
		u.Host = proxy.String()
		return u.String(), nil
	}
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		host, port, err := net.SplitHostPort(proxy.String())
		return fmt.Sprintf("%s host=%s port=%s", address, host, port), err // the last values count
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Del("host")
	query.Del("port")
	u.Host, u.RawQuery = proxy.String(), query.Encode()
	return u.String(), nil
}
