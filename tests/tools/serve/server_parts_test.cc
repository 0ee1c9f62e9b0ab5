#include "foundation/core/scratch_folder.h"
#include "tools/serve/engine/scheduler.h"
#include "tools/serve/http/access.h"
#include "tools/serve/http/connection.h"
#include "tools/serve/json_fields.h"
#include "tools/serve/serve.h"

namespace headroom::serve::server_parts_test {

using ServerFiles = ScratchFolder;

TEST(HostName, IsAnAddressOrThisMachines) {
  for (const char* own : {"127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "localhost", "LOCALHOST:1", "a.localhost:80",
                          "192.0.2.7:8080", "Box.example:8080"}) {
    EXPECT_TRUE(is_own_name(own, "box.example")) << own;
  }
  for (const char* foreign : {"", ":8080", "evil.example", "evil.example:8080", "127.0.0.1.evil.example",
                              "localhost.evil.example", "notlocalhost", "[::1", "[evil.example]", "127.1:8080"}) {
    EXPECT_FALSE(is_own_name(foreign, "box.example")) << foreign;
  }
}

TEST(RequestHead, DiscardsUnusedHeaders) {
  EXPECT_EQ(checked_head("GET / HTTP/1.1\r\nHost: x\r\nrange: bytes=0-\r\nX:\t y \r\nAccept-Encoding: gzip\r\n\r\n"),
            "GET / HTTP/1.1\r\nHost: x\r\nX:\t y \r\n\r\n");
  EXPECT_EQ(checked_head("GET / HTTP/1.0\r\n\r\n"), "GET / HTTP/1.0\r\n\r\n");
}

TEST(RequestHead, ATargetInAbsoluteFormIsAPathOfItsHost) {
  const auto target = [](const std::string& of) {
    return checked_head("GET " + of + " HTTP/1.1\r\nHost: x:80\r\n\r\n");
  };
  EXPECT_EQ(target("http://X:80/a?b"), target("/a?b"));
  EXPECT_EQ(target("HTTP://x:80"), target("/"));
  EXPECT_EQ(target("http://x:80?b"), target("/?b"));
  EXPECT_EQ(target("http://y/"), "GET / HTTP/1.1\r\nHost: y\r\n\r\n");  // replaces the header's
}

TEST(Metrics, CountInBuckets) {
  Metrics metrics;
  metrics.first_token(0.03);
  metrics.first_token(1e9);
  metrics.answered("/v1/completions", 200);
  metrics.set_counts("a\"b\\c\nd", {.steps = 7});
  const std::string page = metrics.page();
  for (const char* line : {"headroom_time_to_first_token_seconds_bucket{le=\"0.025\"} 0\n",
                           "headroom_time_to_first_token_seconds_bucket{le=\"0.05\"} 1\n",
                           "headroom_time_to_first_token_seconds_bucket{le=\"600\"} 1\n",
                           "headroom_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n",
                           "headroom_time_to_first_token_seconds_count 2\n",
                           "headroom_http_requests_total{route=\"/v1/completions\",status=\"200\"} 1\n",
                           "headroom_steps_total{model=\"a\\\"b\\\\c\\nd\"} 7\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << page;
  }
}

TEST(ListeningSocket, TellsWhetherItIsLocal) {
  const ListeningSocket here = listen_on("127.0.0.1", 0), everywhere = listen_on("0.0.0.0", 0);
  EXPECT_TRUE(here.loopback && here.port > 0);
  EXPECT_FALSE(everywhere.loopback);
  EXPECT_THROW(listen_on("127.0.0.1", here.port), UserError);
  ::close(here.descriptor);
  const ListeningSocket again = listen_on("127.0.0.1", here.port);
  EXPECT_EQ(again.port, here.port);
  ::close(again.descriptor);
  ::close(everywhere.descriptor);
  EXPECT_EQ(url_of("::1", 80), "http://[::1]:80");
}

}  // namespace headroom::serve::server_parts_test
