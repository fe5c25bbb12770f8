# The agent for Net::Stomp: perl.pl HOST PORT CASE
use strict;
use warnings;
use Net::Stomp;

my ($host, $port) = @ARGV;
my @hosts = map { /(.*):(.*)/ ? { hostname => $1, port => $2 } : () }
    split /,/, $ENV{STOMPKIT_HOSTS} // "$host:$port";
my $stomp = Net::Stomp->new({ hosts => \@hosts, reconnect_attempts => 1, connect_delay => 0 });

# Net::Stomp writes and reads octets, and knows nothing of escapes or heart-beats.
my $connected = $stomp->connect({
    login            => 'guest',
    passcode         => 'gu:e\st',
    host             => $host,
    'accept-version' => '1.0,1.1,1.2',
});
die "the session is refused\n" unless $connected && $connected->command eq 'CONNECTED';
my $version = $connected->headers->{version} // '1.0';
my $mode    = $version eq '1.0' ? 'client' : 'client-individual';
my $number  = 0;
my $subscriptions = 0;

sub receipt { return (receipt => 'receipt-' . ++$number) }

sub subscribe {
    my $destination = shift;
    $stomp->subscribe({ destination => $destination, id => 'sub-' . ++$subscriptions,
        ack => $mode, receipt() });
}

# bytes_message makes it send a content-length.
sub reply {
    my ($body, %headers) = @_;
    $stomp->send({ %headers, destination => '/queue/out', body => $body, bytes_message => 1,
        receipt() });
}

# Of the commands that Net::Stomp has no methods for.
sub transaction {
    my ($command, $name) = @_;
    $stomp->send_frame(
        Net::Stomp::Frame->new({ command => $command, headers => { transaction => $name } }));
}

# What ACK and NACK have to name depends on the version.
sub names {
    my $message = shift;
    my $headers = $message->headers;
    return { frame => $message, id => $headers->{ack}, receipt() } if $version eq '1.2';
    return { frame => $message, receipt() } if $version eq '1.0';
    return { frame => $message, subscription => $headers->{subscription}, receipt() };
}

subscribe('/queue/in');
while (1) {
    my $message = $stomp->receive_frame;
    if (!$message) {
        die "the connection is lost\n" if @hosts == 1;
        next;    # it connects to the next one, and subscribes, by itself
    }
    die "the broker says " . $message->headers->{message} . "\n" if $message->command eq 'ERROR';
    next if $message->command ne 'MESSAGE';
    my %headers = %{ $message->headers };
    my %own     = map { $_ => $headers{$_} } grep { /^x-/ } keys %headers;
    my $body    = $message->body;
    my ($word, $rest) = split / /, $body, 2;
    $word //= '';
    if ($word eq 'quit') {
        $stomp->unsubscribe({ destination => '/queue/in', id => 'sub-1' });
        $stomp->disconnect;
        exit;
    } elsif ($word eq 'nack') {
        $stomp->nack(names($message));
        next;
    } elsif ($word eq 'subscribe') {
        subscribe($rest);
    } elsif ($word eq 'describe') {
        reply(join '=', %own);
    } elsif ($word eq 'header') {
        reply('', split(/=/, $rest, 2));
    } elsif ($word eq 'commit' || $word eq 'abort') {
        my $name = 'transaction-' . ++$number;
        transaction('BEGIN', $name);
        reply($body, transaction => $name);
        transaction(uc $word, $name);
    } else {
        $own{'content-type'} = $headers{'content-type'} if exists $headers{'content-type'};
        reply($body, %own);
    }
    $stomp->ack(names($message));
}
