%% SPDX-License-Identifier: Apache-2.0
%% Numbers shared with c_src/erlane_sock.h. A socket's own options (those that
%% the kernel does not know) are set and read by number through
%% erlane_nif:setopt/3 and erlane_nif:getopt/2; all values are integers.
-define(OPT_MODE, 0).                 % 0 list, 1 binary
-define(OPT_PACKET, 1).               % ?PB_*
-define(OPT_HEADER, 2).
-define(OPT_DELIVER, 3).              % 0 port, 1 term
-define(OPT_PACKET_SIZE, 4).
-define(OPT_LINE_DELIMITER, 5).
-define(OPT_BUFFER, 6).
-define(OPT_EXIT_ON_CLOSE, 7).
-define(OPT_SHOW_ECONNRESET, 8).
-define(OPT_HIGH_WATERMARK, 9).
-define(OPT_LOW_WATERMARK, 10).
-define(OPT_SEND_TIMEOUT, 11).        % milliseconds, -1 infinity
-define(OPT_SEND_TIMEOUT_CLOSE, 12).
-define(OPT_DELAY_SEND, 13).
-define(OPT_READ_AHEAD, 14).
-define(OPT_LINGER_ZERO, 15).         % kept beside SO_LINGER: 1 when {true,0}
-define(OPT_HIGH_MSGQ, 16).           % stored, no effect
-define(OPT_LOW_MSGQ, 17).            % stored, no effect
-define(OPT_DEBUG, 18).               % stored, no effect
-define(OPT_BUFFER_SET, 19).          % `buffer' was set: 1 by the listener, 2 here
-define(OPT_FAMILY, 20).              % read only: 4, 6 or 0 (local)
-define(OPT_FD, 21).                  % read only
-define(OPT_LANE, 22).                % read only
-define(OPT_STATE, 23).               % read only: ?ST_*
-define(OPT_SEND_PEND, 24).           % read only: bytes queued
-define(OPT_ACTIVE, 25).              % read only: -1 true, -2 once, 0 false, N > 0
-define(OPT_RECBUF, 26).              % write only: recbuf, which `buffer' may follow

-define(PB_RAW, 0).
-define(PB_1, 1).
-define(PB_2, 2).
-define(PB_4, 3).
-define(PB_LINE, 4).
%% from here on erlang:decode_packet/3 frames
-define(PB_ASN1, 5).
-define(PB_SUNRM, 6).
-define(PB_CDR, 7).
-define(PB_FCGI, 8).
-define(PB_TPKT, 9).
-define(PB_SSL, 10).
-define(PB_HTTP, 11).
-define(PB_HTTP_BIN, 12).
-define(PB_HTTPH, 13).
-define(PB_HTTPH_BIN, 14).

-define(ST_OPEN, 0).
-define(ST_CONNECTING, 1).
-define(ST_CONNECTED, 2).
-define(ST_LISTENING, 3).
-define(ST_CLOSED, 4).
-define(ST_KEPT, 5). % ended, the socket still its owner's
