// fault: uncoalesced warning   mended by: an array for each field
// launch: --grid 16 --block 128 --arg f32[16384] --arg f32[2048]=zeros --arg 2048
struct Particle { float x, y, z, speed_x, speed_y, speed_z, mass, charge; };
__global__ void heights(const float* given, float* height, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
#ifdef MENDED
    height[i] = given[2 * n + i];
#else
    const Particle* particles = (const Particle*)given;
    height[i] = particles[i].z;  // <- 4 of each 32 bytes
#endif
}
