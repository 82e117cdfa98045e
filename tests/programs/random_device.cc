// The shortest C++ program that draws a random number of the machine.
#include <cstdio>
#include <random>

int main() {
    std::random_device device;
    std::printf("~ %u %u\n", device(), device());
}
