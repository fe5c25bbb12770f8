# A client on Net::Stomp for ../test_foreign_clients.py; driver.py says what goes in and out.
use strict;
use warnings;
use JSON::PP;
use MIME::Base64;
use Net::Stomp;

my ($host, $port, $version, $heart_beat) = @ARGV;
my $json  = JSON::PP->new->utf8->allow_nonref;
my $stomp = Net::Stomp->new({ hostname => $host, port => $port });
my @messages;     # arrived while something else was waited for
my %delivered;    # the frames that can be acknowledged, by message-id
$| = 1;

# Net::Stomp writes and reads octets; what they mean is left to the program.
sub octets { my $text = shift; utf8::encode($text); return $text }
sub text { my $octets = shift; utf8::decode($octets); return $octets }

sub print_json { print $json->encode(shift), "\n" }

sub print_frame {
    my $frame = shift;
    return print_json(undef) unless $frame;
    my $headers = $frame->headers;
    $delivered{ text($headers->{'message-id'}) } = $frame if $frame->command eq 'MESSAGE';
    print_json({
        command => $frame->command,
        headers => { map { text($_) => text($headers->{$_}) } keys %$headers },
        body    => encode_base64($frame->body // '', ''),
    });
}

# The next frame that is no message.
sub answer {
    while (my $frame = $stomp->receive_frame) {
        return $frame if $frame->command ne 'MESSAGE';
        push @messages, $frame;
    }
    return;
}

# What ACK and NACK have to name depends on the version.
sub acknowledgement {
    my ($message, $headers) = @_;
    my %named = (frame => $message, %$headers);
    $named{subscription} = $message->headers->{subscription} if $version eq '1.1';
    $named{id} = $message->headers->{ack} if $version eq '1.2';
    return \%named;
}

# Of the commands that Net::Stomp has no methods for.
sub send_frame {
    my ($command, $headers) = @_;
    $stomp->send_frame(Net::Stomp::Frame->new({ command => $command, headers => $headers }));
}

# A body of octets needs a content-length, which Net::Stomp sends if it is told to.
sub message {
    my ($headers, $call) = @_;
    return { %$headers, body => octets($call->{text}) } if defined $call->{text};
    return { %$headers, body => decode_base64($call->{octets}), bytes_message => 1 };
}

my %calls = (
    send        => sub { $stomp->send(message(@_)) },
    subscribe   => sub { $stomp->subscribe($_[0]) },
    unsubscribe => sub { $stomp->unsubscribe($_[0]) },
    ack         => sub { $stomp->ack(acknowledgement($delivered{ $_[1]{message} }, $_[0])) },
    nack        => sub { $stomp->nack(acknowledgement($delivered{ $_[1]{message} }, $_[0])) },
    begin       => sub { send_frame('BEGIN',      $_[0]) },
    commit      => sub { send_frame('COMMIT',     $_[0]) },
    abort       => sub { send_frame('ABORT',      $_[0]) },
    disconnect  => sub { send_frame('DISCONNECT', $_[0]) },
);

my %login = ('accept-version' => $version, host => $host, 'heart-beat' => $heart_beat);
my $connected = $stomp->connect($version eq '1.0' ? {} : \%login);
$version = $connected->headers->{version};
print_frame($connected);

while (my $line = <STDIN>) {
    my $call    = $json->decode($line);
    my $name    = $call->{call};
    my %headers = map { octets($_) => octets($call->{headers}{$_}) } keys %{ $call->{headers} };
    if ($name eq 'receive') {
        my $frame = shift(@messages) // $stomp->receive_frame;
        print_frame($frame);
        exit unless $frame;
    } elsif ($name eq 'beat') {
        $stomp->can_read({ timeout => undef });
        print_json(undef);
    } elsif ($name eq 'send_with_receipt' || $name eq 'send_transactional') {
        print_json($stomp->$name(message(\%headers, $call)));
    } else {
        $calls{$name}->(\%headers, $call);
        print_frame($headers{receipt} ? answer() : undef);
        exit if $name eq 'disconnect';
    }
}
$stomp->disconnect;
