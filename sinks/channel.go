package sinks

import "regexp"

// Described is a sink, or the configuration of a [Kind], that says how consumers get its notifications, for the
// catalogue of types. Channel needs no connection, and works with a configuration that lacks secrets. The
// catalogue leaves out sinks that are not described.
type Described interface {
	Channel() Channel
}

// Channel is how consumers get what a sink delivers. Everyone may read it, so it must not contain secrets,
// users and passwords. Every field may be zero. Texts are CommonMark.
type Channel struct {
	// Protocol is its name in AsyncAPI, such as kafka or https.
	Protocol string
	// Hosts are the servers, each as host or host:port.
	Hosts []string
	// Address is the topic, the subject or the path, in which {name} stands for a value of the notification;
	// "" is not known here. See [Address].
	Address string
	// Text describes the channel.
	Text string
	// Verify says how a consumer verifies who has sent a message.
	Verify string
	// Headers are those of every message.
	Headers []Header
	// ContentType is that of messages; "" is that of the payload.
	ContentType string
	// Body returns the JSON Schema of a message, with the schema of the payload in it; nil if messages have a
	// form that no schema describes. A channel without Body sends the payload itself.
	Body func(payload map[string]any) map[string]any
	// ChannelBindings, OperationBindings and MessageBindings are those of AsyncAPI, by protocol.
	ChannelBindings, OperationBindings, MessageBindings map[string]any
}

// Collected returns the channel of a sink that puts several notifications into one message.
func (c Channel) Collected() Channel {
	c.Text = "Several notifications may arrive as one message. " + c.Text
	c.Body = NoSchema
	return c
}

// Header is a header of a message.
type Header struct {
	Name, Text string
	// Optional reports that some messages lack it.
	Optional bool
}

// NoSchema is the Body of channels whose messages no schema describes, such as mails.
func NoSchema(map[string]any) map[string]any { return nil }

var value = regexp.MustCompile(`{{-?\s*\.(?:(Type|ID|Key|Version)|Metadata\.(\w+)|(?:Metadata\.Get|Meta)\s+"([\w-]+)")\s*-?}}`)

// Address converts a template of a configuration to an address: shop.{{.Type}} becomes shop.{Type}, and
// {{.Metadata.tenant}} becomes {tenant}. It returns "" for a template that does more than insert values.
func Address(template string) string {
	address := value.ReplaceAllString(template, "{$1$2$3}")
	if regexp.MustCompile(`{{|}}`).MatchString(address) {
		return ""
	}
	return address
}
