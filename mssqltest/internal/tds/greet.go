package tds

import (
	"errors"
	"fmt"

	"github.com/chanq/chanq/mssqltest/internal/sqltype"
)

// maxLoginBytes bounds the messages before the login.
const maxLoginBytes = 128 << 10

// greet answers PRELOGIN, encrypts the connection if that is agreed, and reads
// LOGIN7.
func (c *Conn) greet() (login7, error) {
	msg, err := c.in.read()
	if err != nil {
		return login7{}, err
	}
	if msg.packetType != packetPrelogin {
		return login7{}, malformedf("message of type %d before PRELOGIN", msg.packetType)
	}
	client, err := parsePrelogin(msg.payload)
	if err != nil {
		return login7{}, err
	}
	config := c.server.options.TLS
	agreed := agreeEncryption(client, config != nil)
	c.out.buf = appendPrelogin(c.out.buf, agreed)
	if err := c.out.finish(); err != nil {
		return login7{}, err
	}
	encrypted := agreed != encryptNotSupported
	if encrypted {
		c.out.packetType = packetPrelogin
		secured, err := secure(c.socket, c.in, c.out, config)
		if err != nil {
			return login7{}, fmt.Errorf("TLS: %w", err)
		}
		plain := c.in.r
		c.in = newMessageReader(secured, maxLoginBytes)
		c.out.w, c.out.packetType = secured, packetReply
		if agreed == encryptOff {
			// Only the first packet of LOGIN7 is encrypted.
			c.in.then, c.out.w = plain, c.socket
			encrypted = false
		}
	}
	if msg, err = c.in.read(); err != nil {
		return login7{}, err
	}
	if msg.packetType != packetLogin {
		return login7{}, malformedf("message of type %d instead of LOGIN7", msg.packetType)
	}
	asked, err := parseLogin7(msg.payload)
	if err != nil {
		return login7{}, err
	}
	granted := grantPacketSize(asked.packetSize, encrypted)
	c.in.maxPacket, c.in.maxBytes = granted, c.server.options.MaxMessageBytes
	c.out.maxPacket = granted
	c.login.Store(&asked.login)
	return asked, nil
}

// admit requests a session from the handler and sends the client the result.
func (c *Conn) admit(asked login7) (Session, error) {
	session, err := c.open(asked)
	if err != nil {
		for _, refusal := range refusals(err) {
			c.out.buf = appendMessage(c.out.buf, c.server.options.ServerName, refusal)
		}
		c.out.buf = appendDone(c.out.buf, done{token: tokenDone, status: doneError})
		return nil, errors.Join(err, c.out.finish())
	}
	database := asked.login.Database
	if database == "" {
		database = "master"
	}
	info := func(number int32, state uint8, text string) {
		c.out.buf = appendMessage(c.out.buf, c.server.options.ServerName,
			&sqltype.Error{Number: number, State: state, Message: text, Line: 1})
	}
	c.out.buf = appendEnvText(c.out.buf, envDatabase, database, "master")
	info(5701, 2, fmt.Sprintf("Changed database context to '%s'.", database))
	c.out.buf = appendEnvBytes(c.out.buf, envCollation, collation[:], nil)
	c.out.buf = appendEnvText(c.out.buf, envLanguage, "us_english", "")
	info(5703, 1, "Changed language setting to us_english.")
	c.out.buf = appendLoginAck(c.out.buf)
	c.out.buf = appendEnvPacketSize(c.out.buf, c.out.maxPacket, asked.packetSize)
	c.out.buf = appendDone(c.out.buf, done{token: tokenDone})
	if err := c.out.finish(); err != nil {
		session.Close()
		return nil, err
	}
	return session, nil
}

// refusals returns the errors that a client receives after a failed login.
func refusals(err error) (reported []*sqltype.Error) {
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		refusal := &sqltype.Error{Number: 50000, State: 1, Class: fatalClass, Line: 1,
			Message: fmt.Sprintf("The emulator failed: %v", err)}
		errors.As(err, &refusal)
		reported = append(reported, refusal)
	}
	return reported
}

func (c *Conn) open(asked login7) (Session, error) {
	switch {
	case asked.version < tds74 || asked.version>>24 != tds74>>24:
		return nil, &sqltype.Error{Number: 17832, State: 1, Class: 20, Line: 1, Message: fmt.Sprintf(
			"The login packet used to open the connection asks for TDS version 0x%08x; the emulator supports 7.4.", asked.version)}
	case asked.integrated:
		return nil, &sqltype.Error{Number: 18452, State: 1, Class: 14, Line: 1,
			Message: "Login failed. The login is from an untrusted domain and cannot be used with Integrated authentication."}
	}
	if err := c.server.refused(); err != nil {
		return nil, err
	}
	return c.server.handler.Login(c.ctx, asked.login)
}
